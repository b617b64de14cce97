/* An encrypted file, as a stranger may have left it: with the key, without it, or with blocks that
 * it copied from elsewhere. First byte: bit 0 damages the header. Then 3 bytes say how much is
 * inside; each further pair is a block: its second byte says where it was put, and its first byte
 * whether it is cut (bit 0), a bit of it is turned (bit 1), or it is of another file of the same
 * key (bit 2). The last 4 bytes say what is read.
 *
 * Opening refuses it or not; each byte that reading gives out is the one that was put at that place
 * of that file, and no byte is written behind the ones that were asked for.
 *
 * Covers: gateway/disk/sealed_file.c gateway/disk/disk_seal.c */
#include <fcntl.h>

#include "gateway/disk/sealed_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_file.h"

#define BLOCK      TB_SEALED_BLOCK_BYTES
#define UNIT       (BLOCK + TB_SEAL_MORE)
#define BLOCKS_MAX 5u
#define READ_MAX   (3u * BLOCK)

static const struct tb_disk_key key = {{9, 8, 7}};
static const struct tb_disk_keys keys = {.key = &key};
static const char *path;
static int fd = -1;
static uint8_t block[BLOCK], unit[UNIT], got[READ_MAX + 1];

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 7 + at / BLOCK);
}

static void begin(void)
{
    path = fuzz_file_begin("tombolo-fuzz-sealed.");
    FUZZ_REQUIRE(path != NULL);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_REQUIRE(fd >= 0);
}

/* As long as it would be at that place. */
static uint32_t block_bytes(uint64_t inside, uint64_t index)
{
    const uint64_t at = index * BLOCK;
    if (at >= inside) return 16;
    return inside - at < BLOCK ? (uint32_t)(inside - at) : BLOCK;
}

static size_t block_put(struct tb_seal *seal, uint64_t inside, const uint8_t *said, size_t at)
{
    const uint64_t index = said[1] % (BLOCKS_MAX + 1);
    const uint32_t count = block_bytes(inside, index);
    for (uint32_t i = 0; i < count; i++)
        block[i] = byte_at(index * BLOCK + i);
    FUZZ_REQUIRE(tb_seal_put(seal, &(struct tb_seal_place){0, index}, block, count, unit) == TB_OK);
    if ((said[0] & 2) != 0) unit[said[1] % (count + TB_SEAL_MORE)] ^= 1;
    const size_t wrote = (said[0] & 1) != 0 ? count : count + TB_SEAL_MORE;
    FUZZ_REQUIRE(pwrite(fd, unit, wrote, (off_t)at) == (ssize_t)wrote);
    return at + UNIT;
}

static void file_make(const uint8_t *bytes, size_t count)
{
    const uint64_t inside = (uint64_t)(bytes[1] | bytes[2] << 8 | bytes[3] << 16) % (BLOCKS_MAX * BLOCK);
    uint8_t header[TB_SEAL_HEADER_BYTES], other[TB_SEAL_HEADER_BYTES];
    struct tb_seal *seal = NULL, *stranger = NULL;
    size_t at = TB_SEAL_HEADER_BYTES;
    FUZZ_REQUIRE(ftruncate(fd, 0) == 0);
    FUZZ_REQUIRE(tb_seal_new(&key, TB_SEAL_ANCHOR, inside, header, &seal) == TB_OK);
    FUZZ_REQUIRE(tb_seal_new(&key, TB_SEAL_ANCHOR, inside, other, &stranger) == TB_OK);
    if ((bytes[0] & 1) != 0) header[bytes[0] % sizeof header] ^= 1;
    FUZZ_REQUIRE(pwrite(fd, header, sizeof header, 0) == (ssize_t)sizeof header);
    for (size_t i = 4; i + 6 <= count && i < 4 + 2 * BLOCKS_MAX; i += 2)
        at = block_put((bytes[i] & 4) != 0 ? stranger : seal, inside, bytes + i, at);
    tb_seal_free(seal);
    tb_seal_free(stranger);
}

static void look_at(struct tb_sealed_file *f, const uint8_t *said)
{
    const uint64_t at = (uint64_t)(said[0] | said[1] << 8) * 8;
    const uint64_t count = (uint64_t)(said[2] | said[3] << 8) * 3 % READ_MAX;
    got[count] = 0x5a;
    const enum tb_status status = tb_sealed_read(f, at, count, got);
    FUZZ_REQUIRE(status == TB_OK || status == TB_BAD_FILE);
    FUZZ_REQUIRE(got[count] == 0x5a);
    FUZZ_REQUIRE(status != TB_OK || at + count <= tb_sealed_inside_bytes(f));
    for (uint64_t i = 0; status == TB_OK && i < count; i++)
        FUZZ_REQUIRE(got[i] == byte_at(at + i));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_sealed_file *f = NULL;
    if (count < 8 || count > 64) return 0;
    if (fd < 0) begin();
    file_make(bytes, count);
    const struct tb_disk_look look = tb_disk_look(fd, TB_SEAL_ANCHOR, "TBANCHR1", &keys);
    const enum tb_status status = tb_sealed_open(fd, &key, &f);
    FUZZ_REQUIRE(status == TB_OK || status == TB_BAD_FILE);
    FUZZ_REQUIRE((status == TB_OK) == (look.found == TB_DISK_FITS));
    FUZZ_REQUIRE((status == TB_OK) == ((bytes[0] & 1) == 0));
    if (status != TB_OK) return 0;
    look_at(f, bytes + count - 4);
    tb_sealed_free(f);
    return 0;
}
