/* open_beneath.h - opens a name beneath a folder where there is no openat2: a kernel before 5.6, an
 * emulator, or a container runtime that forbids it.
 *
 * P8: the result is beneath `folder`, whatever others rename or link meanwhile. Each part of the
 * name is opened by itself and the kernel follows no link: a link is read, and its text takes its
 * place. ".." gives the folder through which the way led, not the one that holds it now.
 * Threads: any. */
#ifndef TB_BASE_OPEN_BENEATH_H
#define TB_BASE_OPEN_BENEATH_H

#include <stdbool.h>

/* A file or a folder that is there. `flags` are openat's, with O_CLOEXEC and without O_CREAT;
 * `links`: links that stay beneath `folder` work. -1 with the errno of openat2 and RESOLVE_BENEATH:
 *   EXDEV         the name, or a link on its way, leads out of `folder`, or is absolute
 *   ELOOP         a link, without `links`; more than 40 links
 *   ENAMETOOLONG  more than 64 folders deep, which openat2 allows
 * and what openat and readlinkat say. */
int tb_open_beneath_by_hand(int folder, const char *name, int flags, bool links);

#endif
