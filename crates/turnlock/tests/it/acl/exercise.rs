//! All that can be done with a primitive, so that each command of its scripts is run once at least.

use turnlock::acl::Primitive;
use turnlock::{Client, Error, Kind, Lock};
use turnlock_testkit::RedisServer;

use super::scene::{Outcome, Scene, check, hold_count, renewed, told};
use crate::rig::ms;
use End::{Silent, Told};

pub(super) async fn of(primitive: Primitive, scene: &Scene) -> Outcome {
    match primitive {
        Primitive::Lock => lock(scene, Told, Client::lock).await,
        Primitive::FencedLock => lock(scene, Told, Client::fenced_lock).await,
        Primitive::SpinLock => lock(scene, Silent, Client::spin_lock).await,
        Primitive::PlainLock => lock(scene, Silent, Client::plain_lock).await,
        Primitive::FairLock => {
            lock(scene, Told, Client::fair_lock).await?;
            queue(scene).await
        }
        Primitive::ReadWriteLock => {
            lock(scene, Told, |client, name| client.read_write_lock(name).write()).await?;
            readers(scene).await
        }
        Primitive::Semaphore => semaphore(scene).await,
        Primitive::PermitSemaphore => permit_semaphore(scene).await,
        Primitive::Latch => latch(scene).await,
        other => Err(format!("nobody knows what to do with a {}", other.noun())),
    }
}

/// Whether the end of a hold is told by a message.
#[derive(PartialEq)]
enum End {
    Told,
    Silent,
}

/// What is common to all that are locks.
async fn lock(scene: &Scene, end: End, of: fn(&Client, &str) -> Lock) -> Outcome {
    let (here, there) = (of(&scene.one, scene.name), of(&scene.two, scene.name));
    let guard = here.lock().await.map_err(told)?;
    renewed(|| guard.valid_until()).await?;
    check(there.try_lock().await.map_err(told)?.is_none(), "it is refused to others")?;
    match guard.reenter().await {
        Ok(inner) => {
            check(hold_count(&here, &guard).await? == 2, "it is held twice")?;
            inner.unlock().await.map_err(told)?;
        }
        // A plain lock.
        Err(Error::WouldDeadlock { .. } | Error::Unsupported(_)) => {}
        Err(error) => return Err(error.to_string()),
    }
    check(hold_count(&here, &guard).await? == 1, "it is held once")?;

    let waiter = tokio::spawn(async move { there.lock().await.map_err(told) });
    if end == Told {
        scene.until_listening().await?;
    }
    guard.unlock().await.map_err(told)?;
    let guard = scene.soon("the one who waits has it", async { waiter.await.map_err(told)? }).await?;
    check(here.force_unlock().await.map_err(told)?, "it was held")?;
    check(matches!(guard.unlock().await, Err(Error::Lost { .. })), "it was taken away")?;

    here.lock().await.map_err(told)?.keep_for(ms(10)).await.map_err(told)?;
    scene.say("SCRIPT FLUSH").await;
    here.lock().await.map_err(told)?.unlock().await.map_err(told)?;

    scene.say(&format!("RPUSH {} foreign", scene.name)).await;
    check(matches!(here.lock().await, Err(Error::Corrupt { .. })), "a foreign key is told")?;
    scene.say(&format!("DEL {}", scene.name)).await;
    Ok(())
}

async fn queue(scene: &Scene) -> Outcome {
    let (here, there) = (scene.one.fair_lock(scene.name), scene.two.fair_lock(scene.name));
    // One who will not come stands before all others.
    scene.say(&format!("RPUSH redisson_lock_queue:{{{}}} nobody", scene.name)).await;
    let guard = here.lock().await.map_err(told)?;
    let (first, second) = (there.clone(), here.clone());
    let gives_up = tokio::spawn(async move { first.try_lock_for(ms(300)).await.map_err(told) });
    scene.until_listening().await?;
    let waits = tokio::spawn(async move { second.lock().await.map_err(told) });
    scene
        .soon("one is left in the queue", async {
            check(gives_up.await.map_err(told)??.is_none(), "the first gives up")?;
            while here.inspect().await.map_err(told)?.queue.len() != 1 {
                tokio::time::sleep(ms(5)).await;
            }
            Ok(())
        })
        .await?;
    scene.until_listening().await?;
    guard.unlock().await.map_err(told)?;
    let guard = scene.soon("the second has it", async { waits.await.map_err(told)? }).await?;
    guard.unlock().await.map_err(told)
}

async fn readers(scene: &Scene) -> Outcome {
    let (here, there) = (scene.one.read_write_lock(scene.name), scene.two.read_write_lock(scene.name));
    let one = here.read().lock().await.map_err(told)?;
    let two = there.read().lock().await.map_err(told)?;
    renewed(|| one.valid_until()).await?;
    check(here.inspect().await.map_err(told)?.holders.len() == 2, "both read")?;
    let inner = one.reenter().await.map_err(told)?;
    // As if the first of the two holds had a short lease: then the second takes its place.
    scene.say(&format!("DEL {{{}}}:{}:rwlock_timeout:1", scene.name, one.owner_id())).await;
    inner.unlock().await.map_err(told)?;
    check(one.is_valid(), "it is still held")?;

    let waiting = there.write();
    let writer = tokio::spawn(async move { waiting.lock().await.map_err(told) });
    scene.until_listening().await?;
    two.unlock().await.map_err(told)?;
    one.unlock().await.map_err(told)?;
    let writer = scene.soon("the writer has it", async { writer.await.map_err(told)? }).await?;
    check(here.read().try_lock().await.map_err(told)?.is_none(), "nobody reads meanwhile")?;
    writer.unlock().await.map_err(told)?;

    // A writer that waits looks every second anyway; a reader does not.
    let writer = here.write().lock().await.map_err(told)?;
    let waiting = there.read();
    let reader = tokio::spawn(async move { waiting.lock().await.map_err(told) });
    scene.until_listening().await?;
    writer.unlock().await.map_err(told)?;
    let reader = scene.soon("the reader has it", async { reader.await.map_err(told)? }).await?;
    reader.unlock().await.map_err(told)?;

    let reader = here.read().lock().await.map_err(told)?;
    check(there.read().force_unlock().await.map_err(told)?, "it was read")?;
    check(matches!(reader.unlock().await, Err(Error::Lost { .. })), "it was taken away")
}

async fn semaphore(scene: &Scene) -> Outcome {
    let (here, there) = (scene.one.semaphore(scene.name), scene.two.semaphore(scene.name));
    check(here.try_set_permits(2).await.map_err(told)?, "there was no number")?;
    let permits = here.acquire(2).await.map_err(told)?;
    check(there.try_acquire(1).await.map_err(told)?.is_none(), "all are out")?;
    check(here.inspect().await.map_err(told)?.available == Some(0), "none is left")?;
    let waiter = tokio::spawn({
        let there = there.clone();
        async move { there.acquire(1).await.map_err(told) }
    });
    scene.until_listening().await?;
    permits.release().await.map_err(told)?;
    let permits = scene.soon("the one who waits has one", async { waiter.await.map_err(told)? }).await?;
    scene.out_of_memory(true).await;
    let given_back = permits.release().await.map_err(told);
    scene.out_of_memory(false).await;
    given_back?;
    check(here.add_permits(3).await.map_err(told)? == 5, "five")?;
    check(here.drain().await.map_err(told)? == 5, "five before")?;
    scene.say("SCRIPT FLUSH").await;
    check(here.release(1).await.map_err(told)? == 1, "one")?;
    check(here.delete().await.map_err(told)?, "there was a number")?;
    scene.say(&format!("RPUSH {} foreign", scene.name)).await;
    check(matches!(here.try_acquire(1).await, Err(Error::Corrupt { .. })), "a foreign key is told")
}

async fn permit_semaphore(scene: &Scene) -> Outcome {
    let (here, there) = (scene.one.permit_semaphore(scene.name), scene.two.permit_semaphore(scene.name));
    check(here.try_set_permits(1).await.map_err(told)?, "there was no number")?;
    check(here.set_permits(3).await.map_err(told)? == 3, "three")?;
    check(here.add_permits(-1).await.map_err(told)? == 2, "two")?;
    let permits = here.acquire(2).await.map_err(told)?;
    renewed(|| permits.valid_until()).await?;
    check(there.try_acquire(1).await.map_err(told)?.is_none(), "all are out")?;
    check(here.inspect().await.map_err(told)?.holders.len() == 2, "two are out")?;
    let waiter = tokio::spawn({
        let there = there.clone();
        async move { there.lease(ms(100)).acquire(1).await.map_err(told) }
    });
    scene.until_listening().await?;
    permits.release().await.map_err(told)?;
    let short = scene.soon("the one who waits has one", async { waiter.await.map_err(told)? }).await?;
    short.forget();
    // Its lease runs out, and it is put back by the next who asks.
    let both = scene.soon("both are free", async { here.acquire(2).await.map_err(told) }).await?;
    both.release().await.map_err(told)?;

    scene.say("SCRIPT FLUSH").await;
    here.acquire(1).await.map_err(told)?.release().await.map_err(told)?;
    scene.out_of_memory(true).await;
    let removed = here.delete().await.map_err(told);
    scene.out_of_memory(false).await;
    check(removed?, "there was a number")?;
    scene.say(&format!("RPUSH {} foreign", scene.name)).await;
    check(matches!(here.try_acquire(1).await, Err(Error::Corrupt { .. })), "a foreign key is told")
}

async fn latch(scene: &Scene) -> Outcome {
    let (here, there) = (scene.one.latch(scene.name), scene.two.latch(scene.name));
    check(here.try_set_count(2).await.map_err(told)?, "there was no count")?;
    check(here.inspect().await.map_err(told)?.available == Some(2), "two")?;
    let waiter = tokio::spawn(async move { there.wait().await.map_err(told) });
    scene.until_listening().await?;
    check(here.count_down().await.map_err(told)? == 1, "one is left")?;
    scene.out_of_memory(true).await;
    let counted = here.count_down().await.map_err(told);
    scene.out_of_memory(false).await;
    check(counted? == 0, "none is left")?;
    scene.soon("the one who waits is told", async { waiter.await.map_err(told)? }).await?;
    scene.say("SCRIPT FLUSH").await;
    check(here.try_set_count(1).await.map_err(told)?, "there was no count")?;
    check(here.delete().await.map_err(told)?, "there was a count")?;
    scene.say(&format!("RPUSH {} foreign", scene.name)).await;
    check(matches!(here.count_down().await, Err(Error::Corrupt { .. })), "a foreign key is told")
}

/// Finds what somebody else holds.
pub(super) async fn finding(server: &RedisServer) -> Outcome {
    let holder = Client::connect(&server.url()).await.map_err(told)?;
    let least = format!("redis://least:PASSWORD@{}", server.addr());
    let least = Client::builder().retry_for(ms(200)).connect(&least).await.map_err(told)?;
    let _lock = holder.lock("guarded:lock").lock().await.map_err(told)?;
    let _plain = holder.plain_lock("guarded:plain").lock().await.map_err(told)?;
    let _fenced = holder.fenced_lock("guarded:fenced").lock().await.map_err(told)?;
    let _reader = holder.read_write_lock("guarded:read").read().lock().await.map_err(told)?;
    let permits = holder.permit_semaphore("guarded:permits");
    permits.set_permits(2).await.map_err(told)?;
    let _permits = permits.acquire(1).await.map_err(told)?;
    let found = least.find("guarded:*", 10).await.map_err(told)?;
    let kinds: Vec<_> = found.things.iter().map(|thing| thing.kind).collect();
    let expected = [Kind::Fenced, Kind::Lock, Kind::Permits, Kind::Plain, Kind::Read];
    check(kinds == expected && found.is_complete, "all are found as what they are")?;
    for thing in found.things.iter().filter(|thing| thing.kind != Kind::Permits) {
        let who = least.identities(&[thing.holders[0].owner.clone()]).await.map_err(told)?;
        check(who[0].is_some(), "it is known who holds them")?;
    }
    Ok(())
}
