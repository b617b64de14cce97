/* key_memory.c - a private key that a context has stands in memory that is neither dumped nor
 * swapped, and nowhere else: neither its number, nor its DER, nor the text of its file (P8).
 *
 * All memory of this program is searched for it. So another process makes the key, and says what
 * it is by bytes that are masked.
 *
 * Covers: base/net/secret_memory.c base/net/tls.c */
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/net/secret_memory.h"
#include "net_world.h"
#include "tests/unit/check.h"

#define MASK         0x5a
#define NEEDLE_BYTES 24u
#define BLOCK        ((size_t)1 << 20)
#define SEARCHED_MAX ((size_t)256 << 20) /* of one mapping: a sanitizer's shadow is larger, and has no copy */

enum { NUMBER, NUMBER_TURNED, TEXT, NEEDLES };

static const char *const names[] = {"its number, and its DER", "its number, as OpenSSL keeps it",
                                    "the text of its file"};

struct needles {
    uint8_t masked[NEEDLES][NEEDLE_BYTES];
};

static void mask(uint8_t out[NEEDLE_BYTES], const uint8_t *bytes, bool turned)
{
    for (size_t i = 0; i < NEEDLE_BYTES; i++)
        out[i] = bytes[turned ? NEEDLE_BYTES - 1 - i : i] ^ MASK;
}

/* In a process of its own. */
static void key_make(struct world *w, int to)
{
    struct needles n;
    BIGNUM *number = NULL;
    uint8_t bytes[32];
    char text[4096] = "";
    world_issue(w, "east", "gw", "tombolo://east/gw");
    const char *path = world_path(w, "east", "gw.key");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    EVP_PKEY *key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    assert_non_null(key);
    assert_int_equal(EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PRIV_KEY, &number), 1);
    assert_int_equal(BN_bn2binpad(number, bytes, sizeof bytes), sizeof bytes);
    mask(n.masked[NUMBER], bytes + 4, false);
    mask(n.masked[NUMBER_TURNED], bytes + 4, true);
    (void)world_file_read(path, text, sizeof text - 1);
    const char *line = strchr(text, '\n'); /* behind BEGIN; the second line of its text is all key */
    assert_non_null(line);
    line = strchr(line + 1, '\n');
    assert_non_null(line);
    mask(n.masked[TEXT], (const uint8_t *)line + 1, false);
    assert_int_equal(write(to, &n, sizeof n), sizeof n);
    _exit(0);
}

/* ---- the search ---- */

struct mapping {
    unsigned long long first, end;
    char flags[256], line[160];
};

static struct mapping mappings[8192];
static uint32_t mapping_count;

/* Of those that can be read. */
static void mappings_read(void)
{
    static char line[512];
    FILE *f = fopen("/proc/self/smaps", "re");
    assert_non_null(f);
    mapping_count = 0;
    bool readable = false;
    while (fgets(line, sizeof line, f) != NULL) {
        struct mapping *m = &mappings[mapping_count];
        unsigned long long first, end;
        char right;
        if (sscanf(line, "%llx-%llx %c", &first, &end, &right) == 3) {
            readable = right == 'r';
            if (!readable) continue;
            assert_true(mapping_count < sizeof mappings / sizeof mappings[0]);
            *m = (struct mapping){.first = first, .end = end};
            (void)snprintf(m->line, sizeof m->line, "%.159s", line);
        } else if (readable && strncmp(line, "VmFlags:", 8) == 0) {
            (void)snprintf(m->flags, sizeof m->flags, "%.250s", line + 8);
            mapping_count++;
        }
    }
    (void)fclose(f);
}

struct found {
    uint32_t kept, loose; /* in memory that is not dumped, and locked; elsewhere */
};

static bool is_there(const uint8_t *at, const uint8_t masked[NEEDLE_BYTES])
{
    uint32_t same = 0;
    while (same < NEEDLE_BYTES && (at[same] ^ MASK) == masked[same])
        same++;
    return same == NEEDLE_BYTES;
}

static void note(struct found *found, const struct mapping *m, const char *what)
{
    const bool locked = strstr(m->flags, " lo") != NULL || tb_secret_memory_state() < TB_SECRET_LOCKED;
    const bool kept = locked && strstr(m->flags, " dd") != NULL;
    found->kept += kept;
    found->loose += !kept;
    if (!kept) print_message("%s: flags%s%s", what, m->flags, m->line);
}

static void look(struct found *found, const struct mapping *m, const struct needles *n, const uint8_t *bytes,
                 size_t count)
{
    for (int k = 0; k < NEEDLES && count >= NEEDLE_BYTES; k++) {
        const uint8_t *const end = bytes + count - NEEDLE_BYTES + 1;
        for (const uint8_t *at = bytes; at < end; at++) {
            at = memchr(at, n->masked[k][0] ^ MASK, (size_t)(end - at));
            if (at == NULL) break;
            if (is_there(at, n->masked[k])) note(found, m, names[k]);
        }
    }
}

/* By the kernel: what cannot be read so is no memory of ours, or hidden from the kernel too. */
static struct found search(const struct needles *n, uint8_t *block)
{
    struct found found = {0};
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    assert_true(memory >= 0);
    mappings_read();
    for (uint32_t i = 0; i < mapping_count; i++) {
        const struct mapping *m = &mappings[i];
        if ((uintptr_t)block >= m->first && (uintptr_t)block < m->end) continue;
        if (m->end - m->first > SEARCHED_MAX) continue;
        for (unsigned long long at = m->first; at < m->end; at += BLOCK - NEEDLE_BYTES) {
            const size_t most = m->end - at < BLOCK ? (size_t)(m->end - at) : BLOCK;
            const ssize_t got = pread(memory, block, most, (off_t)at);
            if (got <= 0) break;
            look(&found, m, n, block, (size_t)got);
        }
    }
    (void)close(memory);
    return found;
}

static void a_key_stands_in_locked_memory_alone(void **state)
{
    struct world *w = *state;
    struct needles n;
    int ends[2], status;
    const enum tb_secret_memory got = tb_secret_memory_open();
    if (got == TB_SECRET_PLAIN) skip();
    assert_int_equal(pipe(ends), 0);
    const pid_t maker = scratch_fork();
    assert_true(maker >= 0);
    if (maker == 0) key_make(w, ends[1]);
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &n, sizeof n), sizeof n);
    assert_int_equal(waitpid(maker, &status, 0), maker);
    (void)close(ends[0]);
    /* shared, so that the kernel joins it with no other mapping */
    uint8_t *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED);
    struct tb_tls *tls = world_tls(w, "east", "gw", "east");
    const struct found loaded = search(&n, block);
    print_message("secret memory %d: the key stands there %u times, and elsewhere %u times\n", (int)got,
                  loaded.kept, loaded.loose);
    assert_true(loaded.kept > 0);
    assert_int_equal(loaded.loose, 0);
    struct pair p;
    pair_init(&p, w, tls, tls, false);
    p.server.expect = p.client.expect = world_expect("tombolo://east/gw");
    pair_open(&p);
    const struct found signed_by = search(&n, block);
    assert_true(signed_by.kept > 0);
    assert_int_equal(signed_by.loose, 0);
    pair_fini(&p);
    tb_tls_free(tls);
    const struct found freed = search(&n, block);
    assert_int_equal(freed.kept + freed.loose, 0);
    (void)munmap(block, BLOCK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {WORLD_TEST(a_key_stands_in_locked_memory_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
