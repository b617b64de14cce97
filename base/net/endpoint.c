/* endpoint.c - text to endpoints and addresses, and back. */
#include "base/net/endpoint.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define UNIX_PREFIX    "unix:"
#define UNIX_PATH_MAX_ (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)

static enum tb_status parse_unix(const char *path, struct tb_endpoint *out)
{
    const size_t bytes = strlen(path);
    if (bytes == 0 || bytes > UNIX_PATH_MAX_ || strcmp(path, "@") == 0) return TB_BAD_ARGUMENT;
    out->is_unix = true;
    memcpy(out->host, path, bytes + 1);
    return TB_OK;
}

static bool parse_port(const char *text, uint16_t *port_out)
{
    uint32_t port = 0;
    if (*text == '\0' || strlen(text) > 5) return false;
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text)) return false;
        port = port * 10 + (uint32_t)(*text - '0');
    }
    *port_out = (uint16_t)port;
    return port <= UINT16_MAX;
}

/* Letters, digits, '-', '_' and '.'; what is made of digits and dots alone must be an IPv4 address,
 * for no name looks so. */
static bool host_valid(const char *host)
{
    const size_t bytes = strlen(host);
    bool numeric = true;
    if (bytes == 0 || bytes > 253 || host[0] == '.' || host[0] == '-') return false;
    for (const char *at = host; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("-_.", *at) == NULL) return false;
        if (!isdigit((unsigned char)*at) && *at != '.') numeric = false;
    }
    struct in_addr v4;
    return !numeric || inet_pton(AF_INET, host, &v4) == 1;
}

static bool split(const char *text, struct tb_endpoint *out, const char **port_out)
{
    const bool bracket = text[0] == '[';
    const char *start = bracket ? text + 1 : text;
    const char *end = strchr(start, bracket ? ']' : ':');
    if (end == NULL || (size_t)(end - start) >= sizeof out->host) return false;
    memcpy(out->host, start, (size_t)(end - start));
    if (bracket && end[1] != ':') return false;
    *port_out = bracket ? end + 2 : end + 1;
    struct in6_addr v6;
    return bracket ? inet_pton(AF_INET6, out->host, &v6) == 1 : host_valid(out->host);
}

static bool parse_service(const char *text, struct tb_endpoint *out)
{
    if (text[0] != '_' || !host_valid(text)) return false;
    TB_ASSERT(strlen(text) < sizeof out->host); /* host_valid has a smaller bound */
    out->is_service = true;
    memcpy(out->host, text, strlen(text) + 1);
    return true;
}

enum tb_status tb_endpoint_parse(const char *text, struct tb_endpoint *endpoint_out)
{
    struct tb_endpoint e = {0};
    enum tb_status status = TB_OK;
    const char *port = NULL;
    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        status = parse_unix(text + strlen(UNIX_PREFIX), &e);
    else if (!parse_service(text, &e) && (!split(text, &e, &port) || !parse_port(port, &e.port)))
        status = TB_BAD_ARGUMENT;
    if (status == TB_OK) *endpoint_out = e;
    return status;
}

static void unix_address(const char *path, struct tb_address *out)
{
    const size_t bytes = strlen(path);
    TB_ASSERT(bytes > 0 && bytes < sizeof out->local.sun_path);
    out->local.sun_family = AF_UNIX;
    memcpy(out->local.sun_path, path, bytes);
    out->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + 1);
    if (path[0] != '@') return;
    out->local.sun_path[0] = '\0'; /* abstract: the name is exactly the bytes, without a NUL behind it */
    out->bytes--;
}

enum tb_status tb_endpoint_address(const struct tb_endpoint *e, struct tb_address *address_out)
{
    struct tb_address a = {0};
    if (e->is_unix) {
        if (strlen(e->host) > UNIX_PATH_MAX_) return TB_BAD_ARGUMENT;
        unix_address(e->host, &a);
    } else if (inet_pton(AF_INET, e->host, &a.v4.sin_addr) == 1) {
        a.v4.sin_family = AF_INET;
        a.v4.sin_port = htons(e->port);
        a.bytes = sizeof a.v4;
    } else if (inet_pton(AF_INET6, e->host, &a.v6.sin6_addr) == 1) {
        a.v6.sin6_family = AF_INET6;
        a.v6.sin6_port = htons(e->port);
        a.bytes = sizeof a.v6;
    } else {
        return TB_NOT_FOUND;
    }
    TB_ASSERT(a.bytes > 0 && a.bytes <= sizeof a.local);
    *address_out = a;
    return TB_OK;
}

static void format_unix(const struct tb_address *a, char *out, size_t cap)
{
    const size_t head = offsetof(struct sockaddr_un, sun_path);
    const size_t bytes = a->bytes > head ? a->bytes - head : 0;
    if (bytes == 0)
        snprintf(out, cap, "unix:");
    else if (a->local.sun_path[0] == '\0')
        snprintf(out, cap, "unix:@%.*s", (int)bytes - 1, a->local.sun_path + 1);
    else
        snprintf(out, cap, "unix:%.*s", (int)bytes, a->local.sun_path);
}

void tb_address_format(const struct tb_address *a, char *out, size_t cap)
{
    char host[INET6_ADDRSTRLEN] = "";
    TB_ASSERT(cap > 0);
    switch (a->any.sa_family) {
    case AF_INET:
        (void)inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof host);
        snprintf(out, cap, "%s:%u", host, ntohs(a->v4.sin_port));
        break;
    case AF_INET6:
        (void)inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof host);
        snprintf(out, cap, "[%s]:%u", host, ntohs(a->v6.sin6_port));
        break;
    case AF_UNIX:
        format_unix(a, out, cap);
        break;
    default:
        snprintf(out, cap, "unknown");
        break;
    }
}

const char *tb_endpoint_why(enum tb_status status, int error)
{
    if (status == TB_SITE_LOCKED) return "another process listens there; end it, or listen elsewhere";
    if (status != TB_SITE_IO || error == 0) return tb_status_text(status);
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return "its folder is not there; make it, writable for this user";
    case EACCES:
    case EPERM:
        return "this user may not listen there: the folder's rights, a socket of another user, or a port "
               "below "
               "1024";
    case ENOTSOCK:
        return "something that is not a socket of this kind stands there; take it away";
    case EADDRNOTAVAIL:
        return "no device of this machine has that address";
    default:
        return strerror(error);
    }
}
