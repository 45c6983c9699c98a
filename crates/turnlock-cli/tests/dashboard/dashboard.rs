use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use turnlock_testkit::within;

use crate::AWHILE;
use crate::http::{self, Events, Response};

/// A running dashboard.
#[derive(Debug)]
pub(crate) struct Dashboard {
    child: Child,
    /// The line that it prints.
    pub(crate) line: String,
    url: String,
    pub(crate) address: SocketAddr,
}

/// The dashboard with these arguments, in an environment without settings.
pub(crate) fn program(store: &str, arguments: &[&str]) -> Command {
    command(store, &[&["dashboard"], arguments].concat())
}

/// Any command of the program, in an environment without settings.
pub(crate) fn command(store: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnlock"));
    command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
    command.env_remove("TURNLOCK_PASSWORD").env("TURNLOCK_STORE", store);
    command
}

impl Dashboard {
    /// Starts the program and waits until it listens. Port 0 is a free one.
    pub(crate) async fn start(store: &str, port: u16, arguments: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{port}");
        let mut usual = Vec::new();
        for pair in [["--listen", &listen], ["--interval", "100ms"]] {
            if !arguments.contains(&pair[0]) {
                usual.extend(pair);
            }
        }
        let mut command = program(store, &[&usual, arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within(AWHILE, "the dashboard starts", lines.next_line()).await.unwrap();
        let line = line.expect("the address");
        let url = line.rsplit(' ').next().unwrap().to_owned();
        let (_, authority) = url.trim_end_matches('/').split_once("://").unwrap();
        Self { child, address: authority.parse().unwrap(), url, line }
    }

    /// The address of the page.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request with these lines of headers.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Response {
        let host = format!("Host: {}", self.address);
        let has_host = headers.iter().any(|header| header.starts_with("Host:"));
        let own: &[&str] = if has_host { &[] } else { &[&host] };
        let length = format!("Content-Length: {}", body.len());
        let lines = [own, headers, &["Connection: close", &length]].concat().join("\r\n");
        http::send(self.address, &format!("{method} {path} HTTP/1.1\r\n{lines}\r\n\r\n{body}")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "").await
    }

    /// Sends a request as the page does.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        let header = self.csrf_header().await;
        self.send("POST", path, &[&header], &body.to_string()).await
    }

    /// The header that a request to change something must have.
    pub(crate) async fn csrf_header(&self) -> String {
        let session = self.get("/api/session").await.json();
        format!("X-Turnlock-Dashboard: {}", session["csrf"].as_str().unwrap())
    }

    pub(crate) async fn events(&self) -> Events {
        Events::open(self.address).await
    }

    /// Sends a signal, an option of `kill`, and returns the exit code.
    pub(crate) async fn stop(mut self, signal: &str) -> Option<i32> {
        let id = self.child.id().expect("a running process").to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
        within(AWHILE, "the dashboard ends", self.child.wait()).await.unwrap().code()
    }
}
