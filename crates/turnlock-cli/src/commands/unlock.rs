use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use turnlock::{Client, Holder, Inspection, Kind, OwnerId, Role};

use super::lock_view::LockView;
use super::show;
use crate::arguments::{StoreArguments, UnlockArguments};
use crate::escape::escape;
use crate::exit_code;

/// Exit code if the lock is not held, is held by another owner, or the user declined.
const NOT_UNLOCKED: u8 = 1;

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
    if matches!(lock.kind, Kind::Semaphore | Kind::Latch) {
        return not_unlocked(&format!("{name} is a semaphore or latch: it has no holders"));
    }
    if let Some(owner) = &only_owner {
        lock.holders.retain(|holder| holder.owner == *owner);
    }
    if lock.holders.is_empty() {
        return not_unlocked(&match &only_owner {
            None => format!("{name} is not held"),
            Some(owner) => format!("{name} is not held by owner {}", escape(owner.as_str())),
        });
    }
    print_holders(&client, &lock).await?;
    if !arguments.yes && !tokio::task::spawn_blocking(confirm).await?? {
        return not_unlocked(&format!("{name} was not unlocked"));
    }
    // The confirmation is valid only for the holders that were shown.
    let only_shown_holders = only_owner.is_some() || !arguments.yes || lock.kind == Kind::Permits;
    let mut was_held = false;
    for (kind, owner) in targets(&lock, only_shown_holders) {
        was_held |= client.force_unlock(kind, &arguments.name, owner).await?;
    }
    if !was_held {
        return not_unlocked(&format!("{name} was released meanwhile, or has another holder now"));
    }
    writeln!(anstream::stderr(), "{name} was unlocked by force")?;
    Ok(ExitCode::SUCCESS)
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
        for holder in &view.holders {
            let owner = escape(&holder.owner);
            writeln!(
                err,
                "{} is held by {}, owner {owner}",
                escape(&view.name),
                show::holder_line(holder, SystemTime::now())
            )?;
        }
    }
    Ok(())
}

fn confirm() -> io::Result<bool> {
    let mut err = anstream::stderr();
    write!(err, "The holder is not notified, and may keep running alongside the next one. Unlock? [y/N] ")?;
    err.flush()?;
    let mut reply = String::new();
    io::stdin().lock().read_line(&mut reply)?;
    Ok(matches!(reply.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn not_unlocked(reason: &str) -> anyhow::Result<ExitCode> {
    writeln!(anstream::stderr(), "turnlock: {reason}")?;
    Ok(ExitCode::from(NOT_UNLOCKED))
}
