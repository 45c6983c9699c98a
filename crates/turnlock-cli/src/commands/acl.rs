use std::io::Write;
use std::process::ExitCode;

use turnlock::Error;
use turnlock::acl::{AclRule, Primitive};

use crate::arguments::AclArguments;

/// `turnlock acl`: prints the `ACL SETUSER` command for a user with minimal rights.
pub(crate) fn acl(arguments: &AclArguments) -> anyhow::Result<ExitCode> {
    let AclArguments { names, user, primitives, cluster, finding, doctor } = arguments;
    if names.contains(|character: char| character.is_control()) {
        let text = "control characters in the names of an ACL rule: write ? for each of them";
        return Err(Error::Unsupported(text.to_owned()).into());
    }
    let primitives = if primitives.is_empty() { &Primitive::ALL[..] } else { primitives };
    let mut rule = AclRule::new(primitives, names).for_user(user);
    if *cluster {
        rule = rule.on_cluster();
    }
    if *finding {
        rule = rule.with_find();
    }
    if *doctor {
        rule = rule.with_doctor();
    }
    writeln!(anstream::stdout(), "{rule}")?;
    Ok(ExitCode::SUCCESS)
}
