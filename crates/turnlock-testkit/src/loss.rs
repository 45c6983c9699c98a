//! The course of a fault that loses a reply.

/// How far the loss of a reply has come; the number is that of the arming.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    None,
    /// The request has been seen and is on its way.
    Seen(u64),
    /// The server has the request.
    Delivered(u64),
    /// At least one byte of the reply is lost, and the client is about to be closed.
    Done(u64),
}
