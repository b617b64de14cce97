/* passphrase.c - asked on the terminal without an echo, or read from a file. */
#include "gateway/cli/passphrase.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/pki/pki.h"
#include "base/private_file.h"
#include "gateway/cli/options.h"

#define CREDENTIAL "credential:"
#define PATH_BYTES 4096

static int say(char error_out[256], const char *what, const char *why)
{
    (void)snprintf(error_out, 256, "%.150s: %.100s", what, why);
    return -1;
}

static void wipe(char *text, size_t count)
{
    volatile char *at = text;
    while (count-- > 0)
        *at++ = '\0';
}

/* ---- a file ---- */

/* NULL: error_out says why. */
static const char *place(const char *text, char path[PATH_BYTES], char error_out[256])
{
    const size_t prefix = sizeof CREDENTIAL - 1;
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (strncmp(text, CREDENTIAL, prefix) != 0) return text;
    const char *name = text + prefix;
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
        return (void)say(error_out, text, "the name of a credential has no '/' and no '.' in front"), NULL;
    if (folder == NULL || folder[0] != '/')
        return (void)say(error_out, text, "$CREDENTIALS_DIRECTORY is not set: use LoadCredential="), NULL;
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES)
        return (void)say(error_out, text, strerror(ENAMETOOLONG)), NULL;
    return path;
}

/* The first line. */
static int read_line(int fd, const char *text, char *out, int cap, char error_out[256])
{
    TB_ASSERT(cap > 1);
    const ssize_t got = read(fd, out, (size_t)cap);
    if (got < 0) return say(error_out, text, strerror(errno));
    const char *end = memchr(out, '\n', (size_t)got);
    const ptrdiff_t count = end != NULL ? end - out : got;
    if (count == 0) return say(error_out, text, "its first line is empty");
    if (count >= cap) return say(error_out, text, "its first line is too long");
    return (int)count;
}

static int ask_file(void *user, const char *path, bool is_new, char *out, int cap, char error_out[256])
{
    const char *text = user;
    char folder[PATH_BYTES], why[TB_PRIVATE_WHY_BYTES];
    (void)path, (void)is_new;
    const char *at = place(text, folder, error_out);
    if (at == NULL) return -1;
    const int fd = open(at, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return say(error_out, text, strerror(errno));
    const bool ours = at == folder ? tb_credential_file(fd, why) : tb_private_file(fd, why);
    const int count = ours ? read_line(fd, text, out, cap, error_out) : say(error_out, text, why);
    (void)close(fd);
    return count;
}

/* ---- the terminal ---- */

/* Character by character: what is typed is in no buffer of the terminal's line. -1: cancelled. */
static int read_typed(int fd, char *out, int cap)
{
    int count = 0;
    for (char c = '\0'; read(fd, &c, 1) == 1;) {
        if (c == '\n' || c == '\r') return count;
        if (c == 3 || (c == 4 && count == 0)) return -1; /* ^C, ^D */
        if ((c == 8 || c == 127) && count > 0)
            count--;
        else if ((unsigned char)c >= ' ' && c != 127 && count < cap - 1)
            out[count++] = c;
    }
    return -1;
}

/* No signal ends the command while the terminal has no echo; ^C comes as a character. */
static int prompt(int fd, const char *question, const char *path, char *out, int cap)
{
    struct termios before, silent;
    sigset_t all, old;
    if (tcgetattr(fd, &before) != 0) return -1;
    silent = before;
    silent.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | ISIG);
    silent.c_cc[VMIN] = 1;
    silent.c_cc[VTIME] = 0;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &old);
    int count = -1;
    if (tcsetattr(fd, TCSAFLUSH, &silent) == 0) {
        (void)dprintf(fd, "%s %.200s: ", question, path);
        count = read_typed(fd, out, cap);
        (void)tcsetattr(fd, TCSAFLUSH, &before);
    }
    (void)dprintf(fd, "\n");
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    return count;
}

static bool same_again(int fd, const char *path, const char *first, int count)
{
    char again[1024];
    const int typed = prompt(fd, "The same passphrase again, of", path, again, sizeof again);
    const bool same = typed == count && memcmp(first, again, (size_t)count) == 0;
    wipe(again, sizeof again);
    return same;
}

static int ask_terminal(void *user, const char *path, bool is_new, char *out, int cap, char error_out[256])
{
    (void)user;
    const int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return say(error_out, path, "has a passphrase, and there is no terminal: --passphrase-file");
    int count = prompt(fd, is_new ? "A passphrase for" : "The passphrase of", path, out, cap);
    if (count == 0 || count < 0)
        count = say(error_out, path, "no passphrase was given");
    else if (is_new && !same_again(fd, path, out, count))
        count = say(error_out, path, "the two passphrases are not the same");
    (void)close(fd);
    return count;
}

void tb_cli_passphrase(const struct tb_cli_call *call, bool makes)
{
    static char file[PATH_BYTES];
    const char *text = tb_cli_text(call, "passphrase-file");
    const bool wanted = text != NULL || (tb_cli_has(call, "passphrase") && tb_cli_given(call, "passphrase"));
    (void)snprintf(file, sizeof file, "%s", text != NULL ? text : "");
    const struct tb_pki_secret secret = {
        .encrypts = makes && wanted, .ask = text != NULL ? ask_file : ask_terminal, .user = file};
    tb_pki_set_secret(&secret);
}

int tb_cli_passphrase_ask(const struct tb_cli_call *call, const char *what, bool is_new, char *out, int cap,
                          char error_out[256])
{
    const char *text = tb_cli_text(call, "passphrase-file");
    if (text == NULL) return ask_terminal(NULL, what, is_new, out, cap, error_out);
    return ask_file((void *)(uintptr_t)text, what, is_new, out, cap, error_out);
}
