/* session_check.c - asserts what holds of a session's tables while its lock is free: each table
 * checks its own rows. Changes no row. */
#include "intra/client/session/session_check.h"

#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

void tb_session_check(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    tb_requests_check(s);
    tb_registrations_check(s);
    tb_subscriptions_check(s);
    tb_stagings_check(s);
    tb_publications_check(s);
    tb_shadows_check(s);
    tb_reserves_check(s);
}

void tb_session_check_turn(struct tb_session *s)
{
    if (TB_CHECK_TURNS) tb_session_check(s);
}
