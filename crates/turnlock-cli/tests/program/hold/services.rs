//! A hold as a service: `NOTIFY_SOCKET` of systemd.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use turnlock_testkit::within;

use super::start_hold;
use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![the_service_manager_is_notified_when_the_lock_is_held, a_failed_notification_is_a_warning];

/// Waits for a datagram.
async fn message(socket: &UnixDatagram) -> String {
    let socket = tokio::net::UnixDatagram::from_std(socket.try_clone().unwrap()).unwrap();
    let mut message = vec![0; 1_000];
    let length = within(ms(20_000), "a notification", socket.recv(&mut message)).await.unwrap();
    message.truncate(length);
    String::from_utf8(message).unwrap()
}

async fn the_service_manager_is_notified_when_the_lock_is_held(fixture: Fixture) {
    let path = fixture.file("notify");
    let abstract_name = format!("turnlock-{}-{}", std::process::id(), fixture.name);
    let abstract_address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
    for (socket, address) in [
        (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
        (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{abstract_name}")),
    ] {
        socket.set_nonblocking(true).unwrap();
        let (holder, _) = start_hold(&fixture, &[]).await;
        let mut command = fixture.hold_command(&["--json"]);
        command.env("NOTIFY_SOCKET", &address);
        let mut waiter = Program::start(command);
        waiter.event_named("waiting").await;
        assert!(socket.recv(&mut [0; 100]).is_err(), "notified before the lock is held");
        assert_eq!(holder.code().await, 0);
        let ready = message(&socket).await;
        assert_eq!(ready, format!("READY=1\nSTATUS=holding \"{}\"\n", fixture.name));
        assert!(!fixture.is_free(&[]).await);
        waiter.line().await;
        assert_eq!(waiter.code().await, 0);
    }
}

async fn a_failed_notification_is_a_warning(fixture: Fixture) {
    for address in ["/no/such/socket", "vsock:2:1234"] {
        let mut command = fixture.hold_command(&["--json"]);
        command.env("NOTIFY_SOCKET", address);
        let mut program = Program::start(command);
        let warning = program.event_named("warning").await;
        assert!(warning["text"].as_str().unwrap().contains("notify the service manager"), "{warning}");
        assert!(!fixture.is_free(&[]).await);
        program.close();
        program.event_named("released").await;
        assert_eq!(program.code().await, 0);
    }
}
