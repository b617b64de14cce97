#include <stdio.h>
#include <string.h>
#include <tombolo/tombolo.h>
#include <tombolo/version.h>

int main(void)
{
    const struct tb_session_options options = {
        .struct_bytes = sizeof options, .gateway = "unix:/nowhere", .open_timeout_ms = 200};
    struct tb_session *session = NULL;
    const int status = tb_session_open(&options, &session);
    printf("libtombolo %s: %s (%s)\n", tb_library_version(), tb_status_name(status), tb_last_error());
    return status == TB_GATEWAY_AWAY && session == NULL ? 0 : 1;
}
