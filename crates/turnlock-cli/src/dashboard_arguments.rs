#![allow(clippy::doc_markdown, reason = "--help shows these comments as they are")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::{duration, value};

/// The shortest time between two queries, so that the store is not queried without a pause.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Show locks in a browser
///
/// Serves a page with the locks, their holders and waiters, what happened to each lock while the page was open, who waits for whom,
/// and the findings of doctor. Prints its address. It takes and releases no lock unless --allow-unlock is given. The store is queried once
/// for all viewers, and only while the page is open somewhere. Runs until INT or TERM, and then exits with 0.
#[derive(Args, Debug)]
pub(crate) struct DashboardArguments {
    /// Address and port; port 0 takes a free one. An address that other machines reach needs --token-file
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7777", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Another name by which browsers reach the page, such as that of a proxy. May be repeated. By default only localhost,
    /// addresses of loopback, and the address of --listen
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub(crate) host: Vec<String>,
    /// A file that contains a token of at least 16 characters. Browsers ask for it once, and other programs send it as
    /// Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve HTTPS, with the certificates in this PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, in a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Allow viewers to release locks by force, after confirmation, and only for the holder that they saw; and to run the checks of
    /// doctor that take locks of their own
    #[arg(long)]
    pub(crate) allow_unlock: bool,
    /// Time between two queries; less than 100ms counts as 100ms
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Show at most N locks
    #[arg(long, value_name = "N", default_value = "20000", value_parser = value::at_least_one)]
    pub(crate) limit: usize,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "give an IP address and a port, such as 127.0.0.1:7777 or [::1]:7777")
}

fn host_name(text: &str) -> Result<String, &'static str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
    if text.is_empty() || !text.chars().all(is_part) {
        return Err("give a host name, without scheme and port");
    }
    Ok(text.to_ascii_lowercase())
}

fn interval(text: &str) -> Result<Duration, String> {
    duration::up_to_an_hour(text).map(|duration| duration.max(MIN_INTERVAL))
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn by_default_only_this_machine_can_connect() {
        let command = DashboardArguments::augment_args(clap::Command::new("dashboard"));
        let matches = command.get_matches_from(["dashboard"]);
        let arguments = DashboardArguments::from_arg_matches(&matches).unwrap();
        assert!(arguments.listen.ip().is_loopback(), "{}", arguments.listen);
        assert!(arguments.token_file.is_none() && arguments.host.is_empty() && !arguments.allow_unlock);
    }
}
