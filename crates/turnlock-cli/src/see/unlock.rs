use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use turnlock::{Client, Holder, Inspection, Kind, OwnerId, Role};

use super::picture::Picture;
use super::show;
use crate::arguments::{StoreArguments, UnlockArguments};
use crate::exit_code;
use crate::visible::visible;

/// Nobody held it, or somebody else, or the question was not answered with yes.
const LEFT_AS_IT_IS: u8 = 1;

/// `turnlock unlock`: takes a lock away from whoever holds it.
pub(crate) async fn unlock(store: &StoreArguments, arguments: UnlockArguments) -> anyhow::Result<ExitCode> {
    let may_ask = io::stdin().is_terminal();
    if !arguments.yes && !may_ask {
        let advice =
            "turnlock: there is no terminal to ask on: say --yes to take the lock away without a question";
        writeln!(anstream::stderr(), "{advice}")?;
        return Ok(ExitCode::from(exit_code::USAGE));
    }
    let client = super::connect(store, Client::builder()).await?;
    let name = visible(&arguments.name);
    let only = arguments.if_owner.as_deref().map(OwnerId::from_wire);
    let Some(mut thing) = client.look_up(&arguments.name).await? else {
        return left(&format!("nobody holds {name}"));
    };
    if matches!(thing.kind, Kind::Semaphore | Kind::Latch) {
        return left(&format!("{name} is a number, without holders: there is nothing to take away"));
    }
    if let Some(only) = &only {
        thing.holders.retain(|holder| holder.owner == *only);
    }
    if thing.holders.is_empty() {
        return left(&match &only {
            None => format!("nobody holds {name}"),
            Some(owner) => format!("{name} is not held by {}", visible(owner.as_str())),
        });
    }
    tell(&client, &thing).await?;
    if !arguments.yes && !tokio::task::spawn_blocking(ask).await?? {
        return left(&format!("{name} was left as it is"));
    }
    // Who was asked has agreed to take it from those who were shown, and from nobody else.
    let is_for_the_shown = only.is_some() || !arguments.yes || thing.kind == Kind::Permits;
    let mut was_held = false;
    for (kind, owner) in targets(&thing, is_for_the_shown) {
        was_held |= client.force_unlock(kind, &arguments.name, owner).await?;
    }
    if !was_held {
        return left(&format!("{name} has been given back meanwhile, or has changed hands"));
    }
    writeln!(anstream::stderr(), "{name} was taken away")?;
    Ok(ExitCode::SUCCESS)
}

/// What is to be freed: the holds of certain owners, or whole sides of the lock.
fn targets(thing: &Inspection, is_for_the_shown: bool) -> Vec<(Kind, Option<&OwnerId>)> {
    let side = |holder: &Holder| match holder.role {
        Role::Reader => Kind::Read,
        Role::Writer => Kind::Write,
        Role::Holder | Role::Permit => thing.kind,
    };
    let mut targets = Vec::new();
    for holder in &thing.holders {
        let target = (side(holder), is_for_the_shown.then_some(&holder.owner));
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    targets
}

/// Says who has it.
async fn tell(client: &Client, thing: &Inspection) -> anyhow::Result<()> {
    let mut err = anstream::stderr().lock();
    for picture in Picture::of_all(client, vec![thing.clone()]).await? {
        for holder in &picture.holders {
            let owner = visible(&holder.owner);
            writeln!(
                err,
                "{} is held by {}, owner {owner}",
                visible(&picture.name),
                show::holder_line(holder)
            )?;
        }
    }
    Ok(())
}

fn ask() -> io::Result<bool> {
    let mut err = anstream::stderr();
    write!(err, "The holder is not asked, and may go on beside the next one. Take it away? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn left(reason: &str) -> anyhow::Result<ExitCode> {
    writeln!(anstream::stderr(), "turnlock: {reason}")?;
    Ok(ExitCode::from(LEFT_AS_IT_IS))
}
