/* init_command.c - tombolo init: the configuration, certificates, firewall lines and, for RDMA, the
 * unit drop-in of a gateway with one peer, and what is to do on the other machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/ident.h"
#include "base/pki/pki.h"
#include "gateway/cli/config_commands.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/path_status.h"
#include "gateway/cli/pki_commands.h"
#include "gateway/config/config.h"

#define DIR_DEFAULT  "/etc/tombolo"
#define PORT_DEFAULT "7400"
#define CA_DAYS      3650u
#define GATEWAY_DAYS 365
#define TEXT_BYTES   8192
#define PATH_BYTES   1024
#define ARENA_MIB    512u /* where the machine does not say how much memory it has */

struct plan {
    const char *site, *dir, *model, *home, *listen, *arena;
    char peer[TB_NAME_BYTES_MAX + 1], address[300];              /* address "": the peer dials */
    char folder[PATH_BYTES];                                     /* DIR/SITE: the certificates */
    char run[PATH_BYTES], state[PATH_BYTES], memory[PATH_BYTES]; /* sockets, store, arena */
    bool requests;                                               /* an authority elsewhere signs */
    bool rdma;                                                   /* this machine has a device for it */
    uid_t owner; /* of what tombolod reads; 0: nobody but us */
    gid_t group;
};

/* The same settings as deploy/systemd/rdma.conf, which a test compares. */
static const char rdma_drop_in[] =
    "# For tombolod@%s, as this machine has RDMA. A NIC pins the arena, so the limit of locked memory goes.\n"
    "[Service]\n"
    "LimitMEMLOCK=infinity\n"
    "PrivateDevices=no\n"
    "DeviceAllow=char-infiniband_verbs rw\n"
    "DeviceAllow=char-infiniband_cm rw\n"
    "DeviceAllow=/dev/infiniband/rdma_cm rw\n"
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_IB\n";

static bool is_name(const char *text)
{
    struct tb_name name;
    return tb_name_set(&name, text) == TB_OK;
}

/* "west" or "west=gw.west.example:7400"; a port that is not said is 7400. */
static bool read_peer(struct plan *p, const char *text)
{
    const char *equals = strchr(text, '=');
    const size_t count = equals != NULL ? (size_t)(equals - text) : strlen(text);
    if (count == 0 || count >= sizeof p->peer) return false;
    memcpy(p->peer, text, count);
    p->peer[count] = '\0';
    p->address[0] = '\0';
    if (equals == NULL) return is_name(p->peer);
    const char *colon = strrchr(equals, ':'), *bracket = strrchr(equals, ']');
    const bool has_port = equals[1] == '_' || (colon != NULL && (bracket == NULL || colon > bracket));
    const int wrote =
        snprintf(p->address, sizeof p->address, "%s%s", equals + 1, has_port ? "" : ":" PORT_DEFAULT);
    return is_name(p->peer) && wrote > 0 && wrote < (int)sizeof p->address;
}

/* The kernel lists each RDMA device there. */
static bool has_rdma(void)
{
    bool found = false;
    DIR *devices = opendir("/sys/class/infiniband");
    if (devices == NULL) return false;
    for (const struct dirent *e; !found && (e = readdir(devices)) != NULL;)
        found = e->d_name[0] != '.';
    closedir(devices);
    return found;
}

/* With --dir everything lies there, for somebody who tries it without being root. */
static bool read_places(struct plan *p, const struct tb_cli_call *call)
{
    const bool own = tb_cli_given(call, "dir");
    char room[1024];
    struct passwd row, *user = NULL;
    if (getuid() == 0 && getpwnam_r("tombolo", &row, room, sizeof room, &user) != 0) user = NULL;
    p->dir = own ? tb_cli_text(call, "dir") : DIR_DEFAULT;
    p->rdma = !own && has_rdma(); /* with --dir no unit of the package runs it */
    p->owner = user != NULL && !own ? user->pw_uid : 0;
    p->group = user != NULL && !own ? user->pw_gid : 0;
    if (snprintf(p->folder, sizeof p->folder, "%s/%s", p->dir, p->site) >= PATH_BYTES - 64) return false;
    snprintf(p->run, sizeof p->run, "%s", own ? p->folder : "/run/tombolo");
    snprintf(p->state, sizeof p->state, "%s", own ? p->folder : "/var/lib/tombolo");
    snprintf(p->memory, sizeof p->memory, "%s", own ? p->folder : "/dev/shm");
    return true;
}

static void arena_size(const struct plan *p, char out[64])
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const unsigned long long mib =
        pages > 0 && page > 0 ? (unsigned long long)pages * (unsigned long long)page / 4 >> 20 : ARENA_MIB;
    if (p->arena != NULL)
        snprintf(out, 64, "%.60s", p->arena);
    else
        snprintf(out, 64, "%lluMiB", mib);
}

/* An address in quotes: that of IPv6 begins with a bracket. */
static void write_links(const struct plan *p, FILE *out)
{
    if (p->listen != NULL || p->address[0] == '\0')
        fprintf(out, "link:\n  listen: \"%s\"\n", p->listen != NULL ? p->listen : "0.0.0.0:" PORT_DEFAULT);
    fprintf(out, "peers:\n  %s:\n    ca: %s/%s-ca.crt # that site's ca.crt, from its machine\n", p->peer,
            p->folder, p->peer);
    if (p->address[0] != '\0') fprintf(out, "    address: \"%s\"\n", p->address);
}

static void write_model(const struct plan *p, FILE *out)
{
    const char *sudo = getenv("SUDO_UID");
    const unsigned long uid = sudo != NULL ? strtoul(sudo, NULL, 10) : getuid();
    fprintf(out, "models:\n  %s:\n    home: %s\n    keep: 2\n", p->model, p->home);
    fprintf(out, "    publish: [\"unix:%lu\"] # at its home: this user, on the gateway's machine\n", uid);
    fprintf(out, "    read: [\"unix:*\", \"tombolo://%s/gw\"]\n", p->peer);
    if (strcmp(p->home, p->site) != 0)
        fprintf(out, "subscribe:\n  - model: %s\n    from: [%s]\n", p->model, p->peer);
}

/* TEXT_BYTES at most; NULL: it is longer. Free it. */
static char *config_text(const struct plan *p)
{
    char *text = NULL, arena[64];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return NULL;
    arena_size(p, arena);
    fprintf(out, "# Made by tombolo init. Every key: tombolo config explain; docs/config.md.\nsite: %s\n",
            p->site);
    fprintf(out, "control:\n  socket: %s/control.sock\nsession:\n  socket: %s/session.sock\n", p->run,
            p->run);
    fprintf(out, "store:\n  path: %s/store.sqlite\n", p->state);
    fprintf(out, "arena:\n  path: %s/tombolo.arena\n", p->memory);
    fprintf(out, "  bytes: %s # (keep + 1) times a version, and 1 %% more, for each model\n", arena);
    fprintf(out, "tls:\n  ca: %s/ca.crt\n  cert: %s/gw.crt\n  key: %s/gw.key\n", p->folder, p->folder,
            p->folder);
    write_links(p, out);
    write_model(p, out);
    if (fclose(out) == 0 && bytes < TEXT_BYTES) return text;
    free(text);
    return NULL;
}

struct complaint {
    char first[300];
};

static void complain(void *user, const char *line)
{
    struct complaint *c = user;
    if (c->first[0] == '\0') snprintf(c->first, sizeof c->first, "%s", line);
}

/* For tombolod's group to read, if we can give it that; errno on false. */
static bool give(const struct plan *p, const char *path, uid_t owner, mode_t mode)
{
    if (p->group == 0) return true;
    return chown(path, owner, p->group) == 0 && chmod(path, mode) == 0;
}

static bool write_file(const struct plan *p, const char *path, const char *text)
{
    TB_ASSERT(text != NULL);
    const size_t bytes = strlen(text);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (fd < 0) return false;
    const bool whole = write(fd, text, bytes) == (ssize_t)bytes;
    return (close(fd) == 0) && whole && give(p, path, 0, 0640);
}

static enum tb_cli_exit failed(const struct tb_cli_call *call, const char *path)
{
    if (errno == EEXIST)
        return tb_say_failure(call, TB_CONFLICT,
                              "%s is there already and is left alone; another site is added by hand, under "
                              "peers, and `tombolo reload` takes it",
                              path);
    return tb_say_failure(call, tb_path_status(errno), "%s: %s", path, strerror(errno));
}

/* The authority, or the request for one elsewhere. */
static enum tb_status make_pair(const struct plan *p, const struct tb_identity *gateway, char error[256])
{
    char csr[PATH_BYTES + 64], key[PATH_BYTES + 64];
    snprintf(csr, sizeof csr, "%s/gw.csr", p->folder);
    snprintf(key, sizeof key, "%s/gw.key", p->folder);
    if (p->requests) return tb_pki_request(csr, key, false, gateway, error);
    const enum tb_status s = tb_pki_init(p->folder, p->site, CA_DAYS, error);
    return s == TB_OK ? tb_pki_issue(p->folder, "gw", gateway, 0, (int64_t)GATEWAY_DAYS * 86400, error) : s;
}

static enum tb_cli_exit certificates(const struct tb_cli_call *call, const struct plan *p)
{
    char error[256] = "", path[PATH_BYTES + 64];
    struct tb_identity gateway = {.kind = TB_IDENTITY_GATEWAY};
    if (tb_name_set(&gateway.site, p->site) != TB_OK || tb_name_set(&gateway.name, "gw") != TB_OK)
        return TB_CLI_SITE; /* both were looked at */
    if (!tb_cli_make_folder(p->folder)) return failed(call, p->folder);
    const enum tb_status s = make_pair(p, &gateway, error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error);
    snprintf(path, sizeof path, "%s/gw.key", p->folder);
    if (!give(p, path, p->owner, 0600)) return failed(call, path);
    return give(p, p->folder, 0, 0750) ? TB_CLI_DONE : failed(call, p->folder);
}

static bool listens(const struct plan *p)
{
    return p->listen != NULL || p->address[0] == '\0';
}

/* The port of this side, for those addresses that should reach it. The table is made anew each
 * time: rules of an earlier run would go on accepting. It is this site's own: another site of the
 * machine, and deploy/network/gateway.nft, keep theirs. Names of sites are names to nft, too. */
static enum tb_cli_exit firewall(const struct tb_cli_call *call, const struct plan *p)
{
    char text[1536], path[PATH_BYTES + 64];
    const char *port = p->listen != NULL ? strrchr(p->listen, ':') + 1 : PORT_DEFAULT;
    snprintf(path, sizeof path, "%s/firewall.nft", p->folder);
    snprintf(
        text, sizeof text,
        "# nft -f FILE: gateways of other sites may connect. Put the addresses of %s in place of 0.0.0.0/0\n"
        "# and ::/0. Running it again replaces what it made before.\n"
        "table inet tombolo_%s {}\n"
        "flush table inet tombolo_%s\n"
        "table inet tombolo_%s {\n"
        "  chain input {\n"
        "    type filter hook input priority -5; policy accept;\n"
        "    tcp dport %s ip saddr 0.0.0.0/0 accept\n"
        "    tcp dport %s ip6 saddr ::/0 accept\n"
        "    tcp dport %s drop\n"
        "  }\n"
        "}\n",
        p->peer, p->site, p->site, p->site, port, port, port);
    if (!listens(p)) return TB_CLI_DONE; /* it opens no port */
    return write_file(p, path, text) ? TB_CLI_DONE : failed(call, path);
}

/* RDMA needs these settings, which the package's unit does not have. */
static enum tb_cli_exit drop_in(const struct tb_cli_call *call, const struct plan *p)
{
    char text[sizeof rdma_drop_in + TB_NAME_BYTES_MAX], path[PATH_BYTES + 64];
    if (!p->rdma) return TB_CLI_DONE;
    snprintf(path, sizeof path, "%s/unit.conf", p->folder);
    snprintf(text, sizeof text, rdma_drop_in, p->site);
    return write_file(p, path, text) ? TB_CLI_DONE : failed(call, path);
}

static enum tb_cli_exit say_next(const struct tb_cli_call *call, const struct plan *p)
{
    const bool dials = p->address[0] != '\0';
    char sign[4 * PATH_BYTES] = "", unit[2 * PATH_BYTES] = "";
    if (p->rdma)
        snprintf(unit, sizeof unit,
                 "     install -D -m 644 %s/unit.conf /etc/systemd/system/tombolod@%s.service.d/rdma.conf\n",
                 p->folder, p->site);
    if (p->requests)
        snprintf(sign, sizeof sign,
                 "0. Where this site's authority is, sign %s/gw.csr as tombolo://%s/gw, and put here what it "
                 "gives:\n"
                 "     tombolo pki sign gw.csr tombolo://%s/gw --dir PKI     # or an authority of your own\n"
                 "     %s/gw.crt (with what stands between it and the root), and %s/ca.crt (the root)\n",
                 p->folder, p->site, p->site, p->folder, p->folder);
    return tb_say_result(
        call,
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "site", p->site, "config", p->dir, "folder", p->folder,
                  "peer", p->peer, "certificates", p->requests ? "requested" : "made", "unit_drop_in",
                  p->rdma),
        "wrote %s/%s.yaml and %s/ (%s%s%s)\n\n"
        "%s"
        "1. On the machine of %s, unless that is done:\n"
        "     tombolo init %s --peer %s%s --model %s --home %s\n"
        "2. Give it this site's CA (ca.crt, never ca.key), and take its own in the same way:\n"
        "     scp %s/ca.crt %s:%s/%s/%s-ca.crt\n"
        "3. On both machines:\n"
        "%s"
        "     systemctl enable --now tombolod@%s    # there: tombolod@%s\n"
        "   tombolo status then shows the link.",
        p->dir, p->site, p->folder, p->requests ? "request" : "certificates",
        listens(p) ? ", firewall.nft" : "", p->rdma ? ", unit.conf" : "", sign, p->peer, p->peer, p->site,
        dials ? "" : "=ADDRESS-OF-THIS-MACHINE", p->model, p->home, p->folder, p->peer, p->dir, p->peer,
        p->site, unit, p->site, p->peer);
}

static enum tb_cli_exit write_all(const struct tb_cli_call *call, const struct plan *p, const char *text)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s.yaml", p->folder);
    if (access(path, F_OK) == 0) {
        errno = EEXIST; /* before a certificate is made */
        return failed(call, path);
    }
    enum tb_cli_exit code = certificates(call, p);
    if (code == TB_CLI_DONE) code = firewall(call, p);
    if (code == TB_CLI_DONE) code = drop_in(call, p);
    if (code != TB_CLI_DONE) return code;
    return write_file(p, path, text) ? say_next(call, p) : failed(call, path);
}

enum tb_cli_exit tb_cli_init(const struct tb_cli_call *call)
{
    struct plan p = {.site = call->arguments[0],
                     .listen = tb_cli_text(call, "listen"),
                     .arena = tb_cli_text(call, "arena"),
                     .requests = tb_cli_given(call, "request")};
    struct complaint wrong = {""};
    struct tb_config *config = NULL;
    const char *peer = tb_cli_text(call, "peer"), *model = tb_cli_text(call, "model"),
               *home = tb_cli_text(call, "home");
    if (peer == NULL)
        return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "--peer is needed");
    p.model = model != NULL ? model : "policy";
    p.home = home != NULL ? home : p.site;
    if (!is_name(p.site) || !is_name(p.model) || !is_name(p.home) || !read_peer(&p, peer))
        return tb_say_failure(call, TB_BAD_ARGUMENT,
                              "a name is 1 to 64 of A-Z a-z 0-9 . _ -, and a peer NAME or NAME=ADDRESS");
    if (strcmp(p.home, p.site) != 0 && strcmp(p.home, p.peer) != 0)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--home is %s or %s", p.site, p.peer);
    if (!read_places(&p, call)) return tb_say_failure(call, TB_BAD_ARGUMENT, "--dir is too long");
    char *text = config_text(&p);
    if (text == NULL) return tb_say_failure(call, TB_SITE_NOMEM, "no memory");
    const enum tb_status s = tb_config_parse("init", text, strlen(text), complain, &wrong, &config);
    tb_config_free(config);
    const enum tb_cli_exit code =
        s == TB_OK ? write_all(call, &p, text) : tb_say_failure(call, TB_BAD_ARGUMENT, "%s", wrong.first);
    free(text);
    return code;
}
