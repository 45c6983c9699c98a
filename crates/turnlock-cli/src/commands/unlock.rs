use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use turnlock::{Client, Error, Holder, Inspection, Kind, OwnerId, Role};

use super::lock_view::{HolderView, LockView};
use super::show;
use crate::arguments::{StoreArguments, UnlockArguments};
use crate::escape::escape;
use crate::exit_code;

/// Exit code if the lock is not held, is held by another owner, or the user declined.
const NOT_UNLOCKED: u8 = 1;

/// What to know before a confirmation.
pub(super) const WARNING: &str = "The holder is not notified, and may keep running alongside the next one.";

/// `turnlock unlock`: releases a lock by force.
pub(crate) async fn unlock(store: &StoreArguments, arguments: UnlockArguments) -> anyhow::Result<ExitCode> {
    let can_prompt = io::stdin().is_terminal();
    if !arguments.yes && !can_prompt {
        let text = "turnlock: standard input is not a terminal: give --yes to unlock without confirmation";
        writeln!(anstream::stderr(), "{text}")?;
        return Ok(ExitCode::from(exit_code::USAGE));
    }
    let client = super::connect(store, Client::builder()).await?;
    let name = escape(&arguments.name);
    let only_owner = arguments.if_owner.as_deref().map(OwnerId::from_wire);
    let Some(mut lock) = client.inspect(&arguments.name).await? else {
        return not_unlocked(&format!("{name} is not held"));
    };
    if let Some(reason) = cannot_unlock(&lock) {
        return not_unlocked(&reason);
    }
    if let Some(owner) = &only_owner {
        lock.holders.retain(|holder| holder.owner == *owner);
        if lock.holders.is_empty() {
            return not_unlocked(&format!("{name} is not held by owner {}", escape(owner.as_str())));
        }
    }
    print_holders(&client, &lock).await?;
    if !arguments.yes && !tokio::task::spawn_blocking(confirm).await?? {
        return not_unlocked(&format!("{name} was not unlocked"));
    }
    // The confirmation is valid only for the holders that were shown.
    let only_shown_holders = only_owner.is_some() || !arguments.yes || lock.kind == Kind::Permits;
    match release(&client, &lock, only_shown_holders).await? {
        Ok(unlocked) => writeln!(anstream::stderr(), "{unlocked}")?,
        Err(reason) => return not_unlocked(&reason),
    }
    Ok(ExitCode::SUCCESS)
}

/// Why the lock cannot be released by force, if it cannot.
pub(super) fn cannot_unlock(lock: &Inspection) -> Option<String> {
    let name = escape(&lock.name);
    if matches!(lock.kind, Kind::Semaphore | Kind::Latch) {
        return Some(format!("{name} is a semaphore or latch: it has no holders"));
    }
    lock.holders.is_empty().then(|| format!("{name} is not held"))
}

/// Releases the lock for its holders. Returns a sentence: that it was unlocked, or why not.
pub(super) async fn release(
    client: &Client,
    lock: &Inspection,
    only_shown_holders: bool,
) -> Result<Result<String, String>, Error> {
    let name = escape(&lock.name);
    let mut was_held = false;
    for (kind, owner) in targets(lock, only_shown_holders) {
        was_held |= client.force_unlock(kind, &lock.name, owner).await?;
    }
    Ok(if was_held {
        Ok(format!("{name} was unlocked by force"))
    } else {
        Err(format!("{name} was released meanwhile, or has another holder now"))
    })
}

/// The holds to release: those of the shown holders, or all holds of a side of the lock.
fn targets(lock: &Inspection, only_shown_holders: bool) -> Vec<(Kind, Option<&OwnerId>)> {
    let side = |holder: &Holder| match holder.role {
        Role::Reader => Kind::Read,
        Role::Writer => Kind::Write,
        _ => lock.kind,
    };
    let mut targets = Vec::new();
    for holder in &lock.holders {
        let target = (side(holder), only_shown_holders.then_some(&holder.owner));
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets
}

/// Prints the holders of the lock.
async fn print_holders(client: &Client, lock: &Inspection) -> anyhow::Result<()> {
    let mut err = anstream::stderr().lock();
    for view in LockView::load(client, vec![lock.clone()]).await? {
        for line in holder_lines(&view) {
            writeln!(err, "{line}")?;
        }
    }
    Ok(())
}

/// A sentence for each holder, with its full owner id.
pub(super) fn holder_lines(lock: &LockView) -> Vec<String> {
    let now = SystemTime::now();
    let line = |holder: &HolderView| {
        let owner = escape(&holder.owner);
        format!("{} is held by {}, owner {owner}", escape(&lock.name), show::holder_line(holder, now))
    };
    lock.holders.iter().map(line).collect()
}

fn confirm() -> io::Result<bool> {
    let mut err = anstream::stderr();
    write!(err, "{WARNING} Unlock? [y/N] ")?;
    err.flush()?;
    let mut reply = String::new();
    io::stdin().lock().read_line(&mut reply)?;
    Ok(matches!(reply.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn not_unlocked(reason: &str) -> anyhow::Result<ExitCode> {
    writeln!(anstream::stderr(), "turnlock: {reason}")?;
    Ok(ExitCode::from(NOT_UNLOCKED))
}
