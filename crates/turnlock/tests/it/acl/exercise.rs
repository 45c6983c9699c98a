//! Uses every operation of a primitive, so that each command of its scripts runs at least once.

use turnlock::acl::Primitive;
use turnlock::{Client, Error, Kind, Lock};
use turnlock_testkit::RedisServer;

use super::acl_fixture::{AclFixture, Outcome, check, hold_count, text, until_renewed};
use crate::fixture::ms;
use ReleaseMessage::{Published, Unpublished};

pub(super) async fn run(primitive: Primitive, fixture: &AclFixture) -> Outcome {
    match primitive {
        Primitive::Lock => lock(fixture, Published, Client::lock).await,
        Primitive::FencedLock => lock(fixture, Published, Client::fenced_lock).await,
        Primitive::SpinLock => lock(fixture, Unpublished, Client::spin_lock).await,
        Primitive::PlainLock => lock(fixture, Unpublished, Client::plain_lock).await,
        Primitive::FairLock => {
            lock(fixture, Published, Client::fair_lock).await?;
            queue(fixture).await
        }
        Primitive::ReadWriteLock => {
            lock(fixture, Published, |client, name| client.read_write_lock(name).writer()).await?;
            readers(fixture).await
        }
        Primitive::Semaphore => semaphore(fixture).await,
        Primitive::PermitSemaphore => permit_semaphore(fixture).await,
        Primitive::Latch => latch(fixture).await,
        other => Err(format!("no exercise for a {}", other.noun())),
    }
}

/// Whether the release of a hold is published.
#[derive(PartialEq)]
enum ReleaseMessage {
    Published,
    Unpublished,
}

/// Exercises what all locks have in common.
async fn lock(fixture: &AclFixture, message: ReleaseMessage, lock_of: fn(&Client, &str) -> Lock) -> Outcome {
    let (here, there) = (lock_of(&fixture.one, fixture.name), lock_of(&fixture.two, fixture.name));
    let guard = here.lock().await.map_err(text)?;
    until_renewed(|| guard.valid_until()).await?;
    check(there.try_lock().await.map_err(text)?.is_busy(), "other owners are refused")?;
    match guard.reenter().await {
        Ok(inner) => {
            check(hold_count(&here, &guard).await? == 2, "it is held twice")?;
            inner.unlock().await.map_err(text)?;
        }
        // A plain lock.
        Err(Error::WouldDeadlock { .. } | Error::Unsupported(_)) => {}
        Err(error) => return Err(turnlock_testkit::error_chain(&error)),
    }
    check(hold_count(&here, &guard).await? == 1, "it is held once")?;

    let waiter = tokio::spawn(async move { there.lock().await.map_err(text) });
    if message == Published {
        fixture.until_subscribed_and_asleep().await?;
    }
    guard.unlock().await.map_err(text)?;
    let guard = fixture.in_time("the waiter acquires", async { waiter.await.map_err(text)? }).await?;
    check(here.force_unlock().await.map_err(text)?, "it was held")?;
    check(matches!(guard.unlock().await, Err(Error::Lost { .. })), "the hold is lost")?;

    here.lock().await.map_err(text)?.unlock_after(ms(10)).await.map_err(text)?;
    fixture.admin_command("SCRIPT FLUSH").await;
    here.lock().await.map_err(text)?.unlock().await.map_err(text)?;

    fixture.admin_command(&format!("RPUSH {} foreign", fixture.name)).await;
    check(matches!(here.lock().await, Err(Error::NotALock { .. })), "a foreign key is an error")?;
    fixture.admin_command(&format!("DEL {}", fixture.name)).await;

    // A hold and a wait of some seconds are announced, and then no longer.
    let (kept, there) = (here.lock().await.map_err(text)?, lock_of(&fixture.two, fixture.name));
    tokio::spawn(async move {
        let _ = there.try_lock_for(ms(3_000)).await;
        drop(kept);
    });
    Ok(())
}

async fn queue(fixture: &AclFixture) -> Outcome {
    let (here, there) = (fixture.one.fair_lock(fixture.name), fixture.two.fair_lock(fixture.name));
    // A dead waiter is at the head of the queue.
    fixture.admin_command(&format!("RPUSH redisson_lock_queue:{{{}}} dead", fixture.name)).await;
    let guard = here.lock().await.map_err(text)?;
    // A live waiter of Redisson is the first to wait, for a moment.
    let name = fixture.name;
    fixture.admin_command(&format!("ZADD redisson_lock_timeout:{{{name}}} 9e12 java:1")).await;
    fixture.admin_command(&format!("RPUSH redisson_lock_queue:{{{name}}} java:1")).await;
    let (first, second) = (there.clone(), here.clone());
    let timed_out = tokio::spawn(async move { first.try_lock_for(ms(300)).await.map_err(text) });
    fixture.until_subscribed_and_asleep().await?;
    let waiter = tokio::spawn(async move { second.lock().await.map_err(text) });
    fixture
        .in_time("one waiter is left in the queue", async {
            check(timed_out.await.map_err(text)??.is_busy(), "the first waiter times out")?;
            while here.inspect().await.map_err(text)?.queue.len() != 2 {
                tokio::time::sleep(ms(5)).await;
            }
            Ok(())
        })
        .await?;
    until_heartbeat(fixture).await?;
    fixture.admin_command(&format!("ZREM redisson_lock_timeout:{{{name}}} java:1")).await;
    fixture.admin_command(&format!("LREM redisson_lock_queue:{{{name}}} 0 java:1")).await;
    until_heartbeat(fixture).await?;
    guard.unlock().await.map_err(text)?;
    let guard = fixture.in_time("the second waiter acquires", async { waiter.await.map_err(text)? }).await?;

    // A waiter does not run any more when the lock is passed on to it. Some seconds later, it is put back.
    let waiting = here.clone();
    let mut waiter = Box::pin(async move { waiting.lock().await });
    while here.inspect().await.map_err(text)?.queue.is_empty() {
        check(tokio::time::timeout(ms(20), &mut waiter).await.is_err(), "it waits")?;
    }
    guard.unlock().await.map_err(text)?;
    tokio::spawn(async move {
        tokio::time::sleep(ms(7_000)).await;
        drop(waiter);
    });
    Ok(())
}

/// Waits until a heartbeat of the only waiter of turnlock was recorded.
async fn until_heartbeat(fixture: &AclFixture) -> Outcome {
    let heartbeat = async || -> Outcome<Vec<String>> {
        let mut cmd = redis::cmd("HVALS");
        let cmd = cmd.arg(format!("turnlock_waiters:{{{}}}", fixture.name));
        cmd.query_async(&mut fixture.admin.clone()).await.map_err(text)
    };
    let before = heartbeat().await?;
    let renewed = async {
        while heartbeat().await? == before {
            tokio::time::sleep(ms(20)).await;
        }
        Ok(())
    };
    fixture.in_time("a heartbeat is recorded", renewed).await
}

async fn readers(fixture: &AclFixture) -> Outcome {
    let (here, there) =
        (fixture.one.read_write_lock(fixture.name), fixture.two.read_write_lock(fixture.name));
    let one = here.reader().lock().await.map_err(text)?;
    let two = there.reader().lock().await.map_err(text)?;
    until_renewed(|| one.valid_until()).await?;
    check(here.inspect().await.map_err(text)?.holders.len() == 2, "both read")?;
    let inner = one.reenter().await.map_err(text)?;
    // As if the first of the two holds had a short lease: then the second one is moved to its key.
    fixture.admin_command(&format!("DEL {{{}}}:{}:rwlock_timeout:1", fixture.name, one.owner_id())).await;
    inner.unlock().await.map_err(text)?;
    check(one.is_valid(), "it is still held")?;

    let mut many = Vec::new();
    for _ in 0..12 {
        many.push(here.reader().lock().await.map_err(text)?);
    }
    for reader in many {
        reader.unlock().await.map_err(text)?;
    }

    let waiting = there.writer();
    let writer = tokio::spawn(async move { waiting.lock().await.map_err(text) });
    fixture.until_subscribed_and_asleep().await?;
    two.unlock().await.map_err(text)?;
    one.unlock().await.map_err(text)?;
    let writer = fixture.in_time("the writer acquires", async { writer.await.map_err(text)? }).await?;
    check(here.reader().try_lock().await.map_err(text)?.is_busy(), "no reader beside a writer")?;
    writer.unlock().await.map_err(text)?;

    // A waiting writer polls every second in any case; a reader does not.
    let writer = here.writer().lock().await.map_err(text)?;
    let waiting = there.reader();
    let reader = tokio::spawn(async move { waiting.lock().await.map_err(text) });
    fixture.until_subscribed_and_asleep().await?;
    writer.unlock().await.map_err(text)?;
    let reader = fixture.in_time("the reader acquires", async { reader.await.map_err(text)? }).await?;
    reader.unlock().await.map_err(text)?;

    let reader = here.reader().lock().await.map_err(text)?;
    check(there.reader().force_unlock().await.map_err(text)?, "there was a reader")?;
    check(matches!(reader.unlock().await, Err(Error::Lost { .. })), "the hold is lost")
}

/// The length of a wait that is announced on the store.
const ANNOUNCED: std::time::Duration = ms(1_700);

async fn semaphore(fixture: &AclFixture) -> Outcome {
    let (here, there) = (fixture.one.semaphore(fixture.name), fixture.two.semaphore(fixture.name));
    check(here.try_set_permits(2).await.map_err(text)?, "it was not set")?;
    let permits = here.acquire(2).await.map_err(text)?;
    check(there.try_acquire(1).await.map_err(text)?.is_busy(), "no permit is left")?;
    check(here.inspect().await.map_err(text)?.available == Some(0), "none is left")?;
    let waiter = tokio::spawn({
        let there = there.clone();
        async move { there.acquire(1).await.map_err(text) }
    });
    fixture.until_subscribed_and_asleep().await?;
    permits.release().await.map_err(text)?;
    let permits = fixture.in_time("the waiter acquires", async { waiter.await.map_err(text)? }).await?;
    fixture.set_out_of_memory(true).await;
    let released = permits.release().await.map_err(text);
    fixture.set_out_of_memory(false).await;
    released?;
    check(here.add_permits(3).await.map_err(text)? == 5, "five")?;
    check(here.drain().await.map_err(text)? == 5, "five before")?;
    fixture.admin_command("SCRIPT FLUSH").await;
    check(here.release(1).await.map_err(text)? == 1, "one")?;
    // Long enough to be announced.
    check(there.try_acquire_for(2, ANNOUNCED).await.map_err(text)?.is_busy(), "one is too few")?;
    check(here.delete().await.map_err(text)?, "it was set")?;
    fixture.admin_command(&format!("RPUSH {} foreign", fixture.name)).await;
    check(matches!(here.try_acquire(1).await, Err(Error::NotALock { .. })), "a foreign key is an error")
}

async fn permit_semaphore(fixture: &AclFixture) -> Outcome {
    let (here, there) =
        (fixture.one.permit_semaphore(fixture.name), fixture.two.permit_semaphore(fixture.name));
    check(here.try_set_permits(1).await.map_err(text)?, "it was not set")?;
    check(here.set_permits(3).await.map_err(text)? == 3, "three")?;
    check(here.add_permits(-1).await.map_err(text)? == 2, "two")?;
    let permits = here.acquire(2).await.map_err(text)?;
    // Optional: a refusal is no error of the exercise.
    let _ = permits.announce().await;
    until_renewed(|| permits.valid_until()).await?;
    check(there.try_acquire(1).await.map_err(text)?.is_busy(), "no permit is left")?;
    check(here.inspect().await.map_err(text)?.holders.len() == 2, "two permits are out")?;
    let waiter = tokio::spawn({
        let there = there.clone();
        async move { there.with_lease(ms(100)).acquire(1).await.map_err(text) }
    });
    fixture.until_subscribed_and_asleep().await?;
    permits.release().await.map_err(text)?;
    let short = fixture.in_time("the waiter acquires", async { waiter.await.map_err(text)? }).await?;
    short.detach();
    // Its lease expires, and the next acquire returns it.
    let both = fixture.in_time("both are free", async { here.acquire(2).await.map_err(text) }).await?;
    both.release().await.map_err(text)?;

    fixture.admin_command("SCRIPT FLUSH").await;
    here.acquire(1).await.map_err(text)?.release().await.map_err(text)?;
    fixture.set_out_of_memory(true).await;
    let removed = here.delete().await.map_err(text);
    fixture.set_out_of_memory(false).await;
    check(removed?, "it was set")?;
    fixture.admin_command(&format!("RPUSH {} foreign", fixture.name)).await;
    check(matches!(here.try_acquire(1).await, Err(Error::NotALock { .. })), "a foreign key is an error")
}

async fn latch(fixture: &AclFixture) -> Outcome {
    let (here, there) = (fixture.one.latch(fixture.name), fixture.two.latch(fixture.name));
    check(here.try_set_count(2).await.map_err(text)?, "it was not set")?;
    check(here.inspect().await.map_err(text)?.available == Some(2), "two")?;
    let waiter = tokio::spawn(async move { there.wait().await.map_err(text) });
    fixture.until_subscribed_and_asleep().await?;
    check(here.count_down().await.map_err(text)? == 1, "one is left")?;
    fixture.set_out_of_memory(true).await;
    let counted = here.count_down().await.map_err(text);
    fixture.set_out_of_memory(false).await;
    check(counted? == 0, "none is left")?;
    fixture.in_time("the waiter is woken", async { waiter.await.map_err(text)? }).await?;
    fixture.admin_command("SCRIPT FLUSH").await;
    check(here.try_set_count(1).await.map_err(text)?, "it was not set")?;
    // Long enough to be announced.
    check(!here.wait_for(ANNOUNCED).await.map_err(text)?, "one is left")?;
    check(here.delete().await.map_err(text)?, "it was set")?;
    fixture.admin_command(&format!("RPUSH {} foreign", fixture.name)).await;
    check(matches!(here.count_down().await, Err(Error::NotALock { .. })), "a foreign key is an error")
}

/// Finds the locks of another client.
pub(super) async fn finding(server: &RedisServer) -> Outcome {
    let holder = Client::connect(&server.url()).await.map_err(text)?;
    let least = format!("redis://least:PASSWORD@{}", server.addr());
    let least = Client::builder().retry_for(ms(200)).connect(&least).await.map_err(text)?;
    let _lock = holder.lock("guarded:lock").lock().await.map_err(text)?;
    let _plain = holder.plain_lock("guarded:plain").lock().await.map_err(text)?;
    let _fenced = holder.fenced_lock("guarded:fenced").lock().await.map_err(text)?;
    let _reader = holder.read_write_lock("guarded:read").reader().lock().await.map_err(text)?;
    let permits = holder.permit_semaphore("guarded:permits");
    permits.set_permits(2).await.map_err(text)?;
    let permits = permits.acquire(1).await.map_err(text)?;
    permits.announce().await.map_err(text)?;
    let found = least.find("guarded:*", 10).await.map_err(text)?;
    let kinds: Vec<_> = found.items.iter().map(|item| item.kind).collect();
    let expected = [Kind::Fenced, Kind::Lock, Kind::Permits, Kind::Plain, Kind::Read];
    check(kinds == expected && found.is_complete, "all are found with their kinds")?;
    for item in &found.items {
        let identities = least.identities(&[item.holders[0].owner.clone()]).await.map_err(text)?;
        check(identities[0].is_some(), "the holder is identified")?;
    }
    Ok(())
}
