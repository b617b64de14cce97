/* bundle_names.h - the names that a bundle's tensors have in its version.
 *
 * A tensor has the name that its file gives it. Where several files have one, the index of their
 * folder says which file's tensor it is (an overlay beside an older copy); files of several folders
 * (text_encoder/, text_encoder_2/) are components. Each other tensor of such a name is FILE:TENSOR.
 *
 * Threads: one. */
#ifndef TB_GATEWAY_CLI_BUNDLE_NAMES_H
#define TB_GATEWAY_CLI_BUNDLE_NAMES_H

#include "gateway/cli/versions/bundle.h"

/* For bundle.c: fills the names of `tensors`, and `tensor_names` of those that are made.
 *   TB_BAD_FILE  an index that is none, or that is wrong
 *   TB_CONFLICT  two files of one folder have a tensor, and no index says which counts; or a name
 *                is FILE:TENSOR of another
 *   TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_bundle_name_tensors(struct tb_bundle *bundle, struct tb_bundle_error *error);

#endif
