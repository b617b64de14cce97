/* sha256.h - SHA-256 (OpenSSL's), for signed manifests and key fingerprints. A shell library: no core links it. */
#ifndef TB_BASE_SHA256_H
#define TB_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_SHA256_BYTES 32

/* TB_SITE_NOMEM when OpenSSL has no memory. */
TB_MUST_USE enum tb_status tb_sha256_of(const void *bytes, size_t count, uint8_t out[TB_SHA256_BYTES]);

#endif
