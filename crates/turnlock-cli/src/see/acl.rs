use std::io::Write;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use turnlock::Error;
use turnlock::acl::{AclRule, Primitive};

use crate::arguments::AclArguments;

/// `turnlock acl`: the command that makes a user with the least rights.
pub(crate) fn acl(arguments: &AclArguments) -> anyhow::Result<ExitCode> {
    let AclArguments { names, user, primitives, cluster, finding, doctor } = arguments;
    if user.is_empty() || user.contains(|character: char| character.is_whitespace() || character.is_control())
    {
        return Err(Error::Unsupported("a user of Redis whose name is empty or has spaces".to_owned()).into());
    }
    if names.contains(|character: char| character.is_control()) {
        let advice = "names with control characters in a rule; write ? for each of them";
        return Err(Error::Unsupported(advice.to_owned()).into());
    }
    let primitives = if primitives.is_empty() { &Primitive::ALL[..] } else { primitives };
    let mut rule = AclRule::new(primitives, names).for_user(user);
    if *cluster {
        rule = rule.on_cluster();
    }
    if *finding {
        rule = rule.with_finding();
    }
    if *doctor {
        rule = rule.with_doctor();
    }
    writeln!(anstream::stdout(), "{rule}")?;
    Ok(ExitCode::SUCCESS)
}

/// Reads what a primitive is called: `fair-lock`.
pub(crate) fn primitive_parser() -> impl TypedValueParser<Value = Primitive> {
    let word = |primitive: Primitive| primitive.noun().replace(' ', "-");
    PossibleValuesParser::new(Primitive::ALL.map(word)).try_map(move |text| {
        Primitive::ALL.into_iter().find(|primitive| word(*primitive) == text).ok_or("not a kind of lock")
    })
}
