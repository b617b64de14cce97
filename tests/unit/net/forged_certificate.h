/* forged_certificate.h - certificates that tb_pki_issue would not make, for the tests of TLS. */
#ifndef TB_TESTS_FORGED_CERTIFICATE_H
#define TB_TESTS_FORGED_CERTIFICATE_H

#include "net_world.h"

struct forge {
    const char *dir, *stem, *alt; /* alt: subjectAltName as openssl.cnf writes it; NULL: none */
    bool ca;                      /* self-signed, without name constraints; else signed by DIR/ca */
    bool own_key_only;            /* self-signed leaf */
};

/* Writes DIR/STEM.crt and DIR/STEM.key; the key can be read by its owner alone. */
void forge(const struct world *w, const struct forge *f);

#endif
