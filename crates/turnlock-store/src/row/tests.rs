use std::cell::Cell;

use turnlock_core::model::{AcquireOptions, Acquired, Claim, Released};
use turnlock_core::{Lease, Moment};

use super::*;
use crate::failure::FailureKind;

/// Rows in memory, of which one may be unreadable, and some clients dead.
#[derive(Default)]
struct TestTable {
    rows: HashMap<Box<str>, Row>,
    unreadable: Option<&'static str>,
    dead: Vec<ClientId>,
    writes: Cell<usize>,
    loads: usize,
}

impl Table for TestTable {
    fn load(&mut self, key: &str) -> Result<Option<Row>, Failure> {
        self.loads += 1;
        if self.unreadable == Some(key) {
            let found = "something else".to_owned();
            return Err(Failure::refused(FailureKind::NotALock { key: key.to_owned(), found }));
        }
        Ok(self.rows.get(key).cloned())
    }

    fn replace(&mut self, key: &str, row: Option<Row>) -> Result<(), Failure> {
        self.writes.set(self.writes.get() + 1);
        self.rows.remove(key);
        self.rows.replace(key, row)
    }

    fn is_alive(&self, client: ClientId) -> bool {
        !self.dead.contains(&client)
    }
}

impl TestTable {
    fn execute(&mut self, me: ClientId, steps: &[Step]) -> (Vec<Reply>, Vec<LockName>) {
        let Executed { replies, freed } = execute(self, steps, NOW, me).expect("no failure of the table");
        (replies.into_iter().map(|reply| reply.expect("a reply")).collect(), freed)
    }

    /// Acquires a lock for the first owner of a client.
    fn acquire(&mut self, client: ClientId, name: &LockName) -> Reply {
        self.execute(client, &[acquire(client, name)]).0.remove(0)
    }
}

const NOW: Now = Now { moment: Moment::from_micros(1_000_000), wall: 5_000_000 };
const GRANTED: Reply = Reply::Acquired(Acquired::Granted);

fn client(number: u8) -> ClientId {
    ClientId::from_random([number; 16])
}

fn name(kind: Kind, name: &str) -> LockName {
    LockName::of(kind, "", name).expect("a name")
}

fn claim(client: ClientId, name: &LockName, target: u32) -> Claim {
    Claim::new(name, &client.owner(1), target)
}

fn acquire(client: ClientId, name: &LockName) -> Step {
    let lease = Lease::new(Duration::from_secs(30)).expect("a lease");
    Step::Acquire(claim(client, name, 1), AcquireOptions { lease, waits: true, highest_token: 0 })
}

fn release(client: ClientId, name: &LockName) -> Step {
    Step::Release(claim(client, name, 0))
}

#[test]
fn two_steps_on_one_key_see_each_other_and_are_written_once() {
    let (mut table, me, orders) = (TestTable::default(), client(1), name(Kind::Lock, "orders"));
    let (replies, freed) = table.execute(me, &[acquire(me, &orders), release(me, &orders)]);
    assert_eq!(replies, [GRANTED, Reply::Released(Released::Freed)]);
    assert_eq!(freed, [orders]);
    assert_eq!((table.loads, table.writes.get(), table.rows.len()), (1, 1, 0), "a free row is deleted");
}

#[test]
fn a_bad_row_concerns_its_own_step_only() {
    let mut table = TestTable { unreadable: Some("bad"), ..TestTable::default() };
    let (me, bad, good) = (client(1), name(Kind::Lock, "bad"), name(Kind::Lock, "good"));
    let steps = [acquire(me, &bad), acquire(me, &good), release(me, &bad)];
    let replies = execute(&mut table, &steps, NOW, me).expect("no failure of the table").replies;
    let is_not_a_lock =
        |reply: &Result<Reply, Failure>| matches!(reply, Err(failure) if failure.concerns_only(&bad));
    assert!(is_not_a_lock(&replies[0]) && is_not_a_lock(&replies[2]), "{replies:?}");
    assert_eq!(*replies[1].as_ref().expect("a reply"), GRANTED);
    assert!(table.rows.contains_key("good") && table.writes.get() == 1);
}

#[test]
fn a_name_of_another_kind_is_refused_and_left_alone() {
    let (mut table, me) = (TestTable::default(), client(1));
    table.acquire(me, &name(Kind::Lock, "orders"));
    let steps = [acquire(me, &name(Kind::Plain, "orders"))];
    let reply = execute(&mut table, &steps, NOW, me).expect("no failure of the table").replies.remove(0);
    assert!(matches!(reply.expect_err("refused").kind, FailureKind::WrongKind { found: Kind::Lock, .. }));
    assert_eq!(table.rows.get_mut("orders").expect("a row").held_kind(NOW), Some(Kind::Lock));
}

#[test]
fn a_dead_client_is_removed_and_its_waiter_freed() {
    let (one, two, queue) = (client(1), client(2), name(Kind::Fair, "queue"));
    let mut table = TestTable::default();
    assert_eq!(table.acquire(one, &queue), GRANTED);
    assert!(matches!(table.acquire(two, &queue), Reply::Acquired(Acquired::Busy { .. })));
    table.dead.push(one);
    // Any step of any other client removes it, and wakes the first waiter.
    let (_, freed) = table.execute(client(3), &[release(client(3), &queue)]);
    assert_eq!(freed, [queue.for_waiter(&two.owner(1))]);
    assert_eq!(table.acquire(two, &queue), GRANTED);
    assert_eq!(table.rows["queue"].others(client(3)), [two]);
}

#[test]
fn a_hold_with_a_delayed_unlock_outlasts_its_client() {
    let (one, two, orders) = (client(1), client(2), name(Kind::Lock, "orders"));
    let lease = Lease::new(Duration::from_secs(60)).expect("a lease");
    let keep = Step::SetLease { claim: claim(one, &orders, 1), lease, outlasts_client: true };
    let mut table = TestTable::default();
    let (replies, _) = table.execute(one, &[acquire(one, &orders), keep]);
    assert_eq!(replies[1], Reply::Renewed(Renewed::Renewed));
    table.dead.push(one);
    assert!(matches!(table.acquire(two, &orders), Reply::Acquired(Acquired::Busy { .. })));
}

#[test]
fn inspect_writes_nothing_and_leaves_out_dead_clients() {
    let (one, two, orders) = (client(1), client(2), name(Kind::Lock, "orders"));
    let mut table = TestTable::default();
    table.acquire(one, &orders);
    let (replies, _) = table.execute(two, &[Step::Inspect(orders.clone())]);
    let Reply::Snapshot(seen) = &replies[0] else { panic!("{replies:?}") };
    assert_eq!(seen.holders[0].since, Some(UNIX_EPOCH + Duration::from_secs(5)));
    table.dead.push(one);
    let (replies, freed) = table.execute(two, &[Step::Inspect(orders.clone())]);
    let Reply::Snapshot(seen) = &replies[0] else { panic!("{replies:?}") };
    assert!(seen.holders.is_empty() && freed.is_empty(), "{seen:?}");
    assert_eq!((table.writes.get(), table.rows.len()), (1, 1), "only the acquire was written");
}

#[test]
fn an_inspected_row_stays_in_a_map() {
    let (mut rows, me, orders) = (HashMap::new(), client(1), name(Kind::Lock, "orders"));
    for step in [acquire(me, &orders), Step::Inspect(orders.clone()), Step::Inspect(name(Kind::Lock, "free"))]
    {
        execute(&mut rows, &[step], NOW, me).expect("no failure of the table");
        assert_eq!(rows.keys().map(|key| &**key).collect::<Vec<_>>(), ["orders"]);
    }
}

#[test]
fn steps_can_be_executed_again_on_rows_that_were_read_again() {
    let (me, other, orders) = (client(1), client(2), name(Kind::Fenced, "orders"));
    let steps = [acquire(me, &orders)];
    // The first attempt is not committed, since another client was faster.
    execute(&mut HashMap::new(), &steps, NOW, me).expect("no failure of the table");
    let mut read_again = HashMap::new();
    execute(&mut read_again, &[acquire(other, &orders)], NOW, other).expect("no failure of the table");
    let executed = execute(&mut read_again, &steps, NOW, me).expect("no failure of the table");
    assert!(matches!(executed.replies[..], [Ok(Reply::Acquired(Acquired::Busy { .. }))]), "{executed:?}");
}
