/* An anchor's file, as a stranger may have left it in the folder: the input is what stands behind
 * its front. First byte: bit 0 makes the front's check fit, so that what is behind it is read too;
 * bit 1 says that the head is half as long as it is.
 *
 * It is refused, or what it says of its version is true up to the root; its shards stand
 * apart, in order; and each chunk can be read, or is said to be cut short, and no byte is read
 * but the chunk's own.
 *
 * Covers: gateway/disk/anchor_file.c */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/layout/version_key.h"
#include "gateway/disk/anchor_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_file.h"

static const struct tb_disk_keys in_clear = {.key = NULL};

#define FRONT_BYTES 64u
#define COUNT_MAX   ((size_t)1 << 20)
#define CHUNK_MAX   ((uint32_t)2 << 20) /* as large as a group may be; more is read by nobody here */

static const char *path;
static int fd = -1;
static uint8_t file[FRONT_BYTES + COUNT_MAX], chunk[CHUNK_MAX + 1];

static void begin(void)
{
    path = fuzz_file_begin("tombolo-fuzz-anchor.");
    FUZZ_REQUIRE(path != NULL);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_REQUIRE(fd >= 0);
}

/* "TBANCHR1", u64 bytes of the head, its digest, zeros: as anchor_file.h has it. The head is all of
 * the input, up to two bytes that say how much of its end is no head but packed bytes. */
static size_t file_make(const uint8_t *bytes, size_t count)
{
    const size_t behind = (size_t)(bytes[1] | bytes[2] << 8), body = count - 3;
    const size_t head = behind < body ? body - behind : body;
    const struct tb_digest check = tb_digest_of(bytes + 3, head);
    struct tb_writer w;
    memset(file, 0, FRONT_BYTES);
    tb_writer_init(&w, file, FRONT_BYTES);
    tb_write_bytes(&w, "TBANCHR1", 8);
    tb_write_u64(&w, (bytes[0] & 2) != 0 ? head / 2 : head);
    if ((bytes[0] & 1) != 0) tb_write_bytes(&w, check.bytes, sizeof check.bytes);
    memcpy(file + FRONT_BYTES, bytes + 3, body);
    return FRONT_BYTES + body;
}

static void look_at_shard(struct tb_anchor_file *f, uint32_t shard, size_t count)
{
    const struct tb_manifest *m = &f->manifests[shard];
    const struct tb_digest root = tb_manifest_root(m);
    FUZZ_REQUIRE(tb_digest_equal(&root, &m->root));
    for (uint32_t k = 0; k < m->chunk_count && k < 64; k++) {
        const struct tb_chunk *c = &m->chunks[k];
        const uint64_t at = f->offsets[shard] + c->offset;
        FUZZ_REQUIRE(c->offset <= m->bytes && c->bytes <= m->bytes - c->offset);
        if (c->bytes > CHUNK_MAX) continue;
        chunk[c->bytes] = 0x5a;
        const bool there = at <= count && c->bytes <= count - at;
        FUZZ_REQUIRE(tb_anchor_read(f, shard, k, chunk) == (there ? TB_OK : TB_SITE_IO));
        FUZZ_REQUIRE(chunk[c->bytes] == 0x5a);
        FUZZ_REQUIRE(!there || memcmp(chunk, file + at, c->bytes) == 0);
    }
}

static void look_at(struct tb_anchor_file *f, size_t count)
{
    uint64_t end = FRONT_BYTES;
    FUZZ_REQUIRE(f->key.shard_count > 0 && !tb_id_is_zero(&f->key.uid));
    struct tb_digest *roots = calloc(f->key.shard_count, sizeof *roots);
    for (uint32_t s = 0; s < f->key.shard_count; s++) {
        FUZZ_REQUIRE(f->offsets[s] >= end && f->offsets[s] % 4096 == 0);
        end = f->offsets[s] + f->manifests[s].bytes;
        FUZZ_REQUIRE(end >= f->offsets[s]);
        roots[s] = f->manifests[s].root;
        look_at_shard(f, s, count);
    }
    FUZZ_REQUIRE(f->bytes == end);
    const struct tb_digest root = tb_version_key_root(&f->key, roots);
    FUZZ_REQUIRE(tb_digest_equal(&root, &f->key.root));
    free(roots);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    if (count < 3 || count > COUNT_MAX) return 0;
    if (fd < 0) begin();
    const size_t file_bytes = file_make(bytes, count);
    FUZZ_REQUIRE(ftruncate(fd, 0) == 0);
    FUZZ_REQUIRE(pwrite(fd, file, file_bytes, 0) == (ssize_t)file_bytes);
    const enum tb_status status = tb_anchor_open(path, &in_clear, &f, error);
    FUZZ_REQUIRE(status == TB_OK || status == TB_BAD_FILE || status == TB_SITE_NOMEM);
    FUZZ_REQUIRE((status == TB_OK) == (error[0] == '\0'));
    if (status != TB_OK) return 0;
    look_at(&f, file_bytes);
    tb_anchor_close(&f);
    return 0;
}
