/* own_certificate.h - the certificate that this process shows to its gateway, and the files that it
 * comes from. By one thread at a time. */
#ifndef TB_INTRA_CLIENT_OWN_CERTIFICATE_H
#define TB_INTRA_CLIENT_OWN_CERTIFICATE_H

#include <stdbool.h>

#include "base/net/tls.h"
#include "tombolo/tombolo.h"

struct tb_own_certificate {
    struct tb_tls *tls;    /* as it was read last; NULL: there is none, as by a unix socket */
    char *ca, *cert, *key; /* paths */
    bool fresh;            /* read when it was opened, and not used yet */
    char refused[256];     /* why the files could not be read again, told once; empty: they could */
};

/* The reason of a failure is in tb_last_error; close it all the same. */
int tb_own_certificate_open(struct tb_own_certificate *own, const struct tb_session_options *options);
/* Before each connection: reads the files again, unless that was done a moment ago. */
void tb_own_certificate_again(struct tb_own_certificate *own);
void tb_own_certificate_close(struct tb_own_certificate *own);

#endif
