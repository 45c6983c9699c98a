//! A server with another clock than the client: the server measures leases, and no client time is sent.

use redis::AsyncCommands;
use turnlock::{Client, LostReason};
use turnlock_testkit::{RedisServer, eventually, within};

use crate::fixture::{Fixture, NO_POLL, PROMPT, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![the_clocks_of_client_and_server_may_be_an_hour_apart];

async fn the_clocks_of_client_and_server_may_be_an_hour_apart(_: Fixture) {
    for shift in [3_600, -3_600] {
        let server = RedisServer::start_with_clock_ahead(shift).await;
        let mut plain = server.client().await;
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut plain).await.expect("a time");
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let apart = seconds - i64::try_from(here.as_secs()).expect("before 2500");
        assert!((apart - shift).abs() < 5, "the server's clock is {apart} s ahead");

        let client = Client::builder()
            .watchdog_timeout(ms(3_000))
            .poll_interval(NO_POLL)
            .connect(&server.url())
            .await
            .expect("a server");
        let renewed = client.lock("renewed").lock().await.expect("free");
        let end = renewed.valid_until();
        let ttl: i64 = plain.pttl("renewed").await.expect("a reply");
        assert!((1..=3_000).contains(&ttl), "{ttl} ms left of 3,000, with a shift of {shift} s");
        eventually("it is renewed", ms(10_000), async || renewed.valid_until() > end + ms(3_000)).await;
        assert!(plain.exists::<_, bool>("renewed").await.expect("a reply"));
        renewed.unlock().await.expect("held");

        let fixed = client.lock("fixed").with_lease(ms(1_000)).lock().await.expect("free");
        let waiting = client.lock("fixed");
        let next = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        assert_eq!(within(PROMPT, "the lease ends locally", fixed.lost()).await, LostReason::Expired);
        let next = within(PROMPT, "the lease ends on the server", next).await.expect("no panic");
        next.unlock().await.expect("held");
    }
}
