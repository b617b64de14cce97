/* blob_name.h - names that a blob, and a file of `tombolo subscribe`, may have. Pure. */
#ifndef TB_BASE_BLOB_NAME_H
#define TB_BASE_BLOB_NAME_H

#include <stdbool.h>

#define TB_BLOB_NAME_MAX 255 /* bytes; relative path, '/' allowed inside, never "..", never absolute */

/* True for a clean relative path of 1 to TB_BLOB_NAME_MAX bytes. */
bool tb_blob_name_valid(const char *name);
/* True for the name of a file that `tombolo subscribe` writes: such a path, at most
 * TB_FILE_DEPTH_MAX folders deep, and nothing that is subscribe's own: the markers STABLE and
 * WITHDRAWN or what is in a folder of that name, parts that begin with ".tombolo". */
#define TB_FILE_DEPTH_MAX 8
bool tb_blob_file_name_valid(const char *name);
/* True for a blob that it can write, or that it reads itself: .tombolo/header/FILE and
 * .tombolo/file/DIGEST/FILE. */
bool tb_blob_name_writable(const char *name);

#endif
