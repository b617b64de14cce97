/* A backup, as a stranger may have made it: the bytes behind the head, or without one. First byte:
 * bit 0 puts a right head in front. Reading gives entries or refuses; an entry's path is absolute
 * and has no "..", its bytes are no more than the file has, and it ends.
 *
 * Covers: gateway/cli/backup/backup_entry.c gateway/cli/backup/backup_stream.c */
#include <fcntl.h>

#include "gateway/cli/backup/backup_stream.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_file.h"

static int fd = -1;
static uint8_t got[1 << 16];

static void begin(void)
{
    const char *path = fuzz_file_begin("tombolo-fuzz-backup.");
    FUZZ_REQUIRE(path != NULL);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_REQUIRE(fd >= 0);
}

static void file_make(const uint8_t *bytes, size_t count)
{
    uint8_t head[TB_BACKUP_HEAD_BYTES];
    const struct tb_backup_head clear = {.lock = TB_BACKUP_CLEAR};
    size_t at = 0;
    FUZZ_REQUIRE(ftruncate(fd, 0) == 0);
    if ((bytes[0] & 1) != 0) {
        tb_backup_head_encode(&clear, head);
        FUZZ_REQUIRE(pwrite(fd, head, sizeof head, 0) == (ssize_t)sizeof head);
        at = sizeof head;
    }
    FUZZ_REQUIRE(pwrite(fd, bytes + 1, count - 1, (off_t)at) == (ssize_t)(count - 1));
}

static enum tb_status skip(struct tb_backup_stream *s, uint64_t bytes)
{
    enum tb_status status = TB_OK;
    while (status == TB_OK && bytes > 0) {
        const uint64_t count = bytes < sizeof got ? bytes : sizeof got;
        status = tb_backup_get(s, got, count);
        bytes -= count;
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_backup_stream *s = NULL;
    struct tb_backup_head head;
    struct tb_backup_entry e = {.role = TB_BACKUP_FILE};
    if (count < 1) return 0;
    if (fd < 0) begin();
    file_make(bytes, count);
    enum tb_status status = tb_backup_head_read(fd, &head);
    FUZZ_REQUIRE(status == TB_OK || status == TB_BAD_FILE);
    if (status != TB_OK || tb_backup_open(fd, NULL, &s) != TB_OK) return 0;
    while (status == TB_OK && e.role != TB_BACKUP_END) {
        status = tb_backup_next(s, &e);
        FUZZ_REQUIRE(status == TB_OK || status == TB_BAD_FILE);
        if (status != TB_OK || e.role == TB_BACKUP_END) break;
        FUZZ_REQUIRE(tb_backup_path_good(e.path) && strstr(e.path, "/../") == NULL);
        FUZZ_REQUIRE(e.bytes <= count + TB_BACKUP_HEAD_BYTES);
        status = skip(s, e.bytes);
    }
    if (status == TB_OK) status = tb_backup_end(s);
    FUZZ_REQUIRE(status == TB_OK || status == TB_BAD_FILE);
    tb_backup_free(s);
    return 0;
}
