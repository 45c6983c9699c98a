use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use anstyle::Style;
use turnlock::Client;

use super::picture::{HolderPicture, Picture, rfc_3339};
use super::{owner_name, span};
use crate::arguments::{ShowArguments, StoreArguments};
use crate::visible::{json, visible};

const FIELD: Style = Style::new().bold();

/// `turnlock show`: all that is known of one lock. One that nobody holds is no error.
pub(crate) async fn show(store: &StoreArguments, arguments: ShowArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder()).await?;
    let thing = client.look_up(&arguments.name).await?;
    let picture = Picture::of_all(&client, thing.into_iter().collect()).await?.pop();
    let picture = picture.unwrap_or_else(|| Picture::nothing(&arguments.name));
    let mut out = anstream::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", json(&picture)?)?;
    } else {
        write(&mut out, &picture, SystemTime::now())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The lock for people, a field a line.
pub(super) fn write(out: &mut impl Write, picture: &Picture, now: SystemTime) -> io::Result<()> {
    field(out, "name", &visible(&picture.name))?;
    if let Some(kind) = picture.kind {
        field(out, "kind", kind)?;
    }
    if picture.holders.is_empty() && picture.available.is_none() {
        field(out, "held by", "nobody holds it")?;
    }
    for (at, holder) in picture.holders.iter().enumerate() {
        field(out, if at == 0 { "held by" } else { "" }, &holder_line(holder))?;
        field(out, "", &format!("owner {}", visible(&holder.owner)))?;
        if let Some(since) = holder.since {
            let held_for = span::short(now.duration_since(since).unwrap_or_default());
            field(out, "", &format!("since {}, for {held_for}", rfc_3339(since)))?;
        }
        if let Some(ttl) = holder.ttl {
            field(out, "", &format!("ends in {} if it is not renewed", span::short(ttl)))?;
        }
    }
    match picture.ttl {
        Some(ttl) => field(out, "ttl", &span::short(ttl))?,
        None if picture.locked => field(out, "ttl", "no end")?,
        None => {}
    }
    if let Some(token) = picture.token {
        field(out, "token", &token.to_string())?;
    }
    if let Some(free) = picture.available {
        field(out, "free", &free.to_string())?;
    }
    for (at, waiter) in picture.queue.iter().enumerate() {
        let who = owner_name::who(waiter.host.as_deref(), waiter.pid, waiter.label.as_deref());
        let line = format!("{}. {}", at + 1, owner_name::brief(who.as_deref(), &waiter.owner));
        field(out, if at == 0 { "queue" } else { "" }, &line)?;
    }
    Ok(())
}

/// Who it is, as what, and how often.
pub(super) fn holder_line(holder: &HolderPicture) -> String {
    let who = owner_name::who(holder.host.as_deref(), holder.pid, holder.label.as_deref());
    let who = who.unwrap_or_else(|| "somebody who has not said who it is".to_owned());
    let as_what = match holder.mode {
        "exclusive" => String::new(),
        mode => format!(", {mode}"),
    };
    match holder.count {
        0 | 1 => format!("{who}{as_what}"),
        count => format!("{who}{as_what}, {count} times"),
    }
}

fn field(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{FIELD}{name:8}{FIELD:#}{text}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::picture::WaiterPicture;
    use super::super::picture::tests::held;
    use super::*;

    fn shown(picture: &Picture) -> String {
        let mut out = Vec::new();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(135);
        write(&mut out, picture, now).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string()
    }

    #[test]
    fn a_lock_is_shown_with_all_that_is_known() {
        let mut picture = held("tickets");
        picture.kind = Some("fair-lock");
        picture.holders[0].count = 2;
        picture.token = Some(7);
        picture.queue = vec![WaiterPicture { owner: "java:1".into(), host: None, pid: None, label: None }];
        let expected = "\
name    tickets
kind    fair-lock
held by web-1:42 (deploy.sh), 2 times
        owner 07070707-1707-4707-8707-070707070707:12
        since 1970-01-01T00:00:01.500Z, for 2m 13s
ttl     28s
token   7
queue   1. java:1
";
        assert_eq!(shown(&picture), expected);
    }

    #[test]
    fn nobody_and_a_stranger_are_named_as_such() {
        assert_eq!(shown(&Picture::nothing("a\nb")), "name    a\\nb\nheld by nobody holds it\n");
        let mut picture = held("orders");
        picture.holders[0].host = None;
        assert!(shown(&picture).contains("somebody who has not said who it is\n        owner 07070707-"));
    }
}
