//! The progress of a fault that loses a reply.

/// How far a fault that loses a reply has progressed. The number identifies the armed fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyLoss {
    None,
    /// The request was read from the client and is in transit.
    Seen(u64),
    /// The server has the request.
    Delivered(u64),
    /// At least one byte of the reply is lost; the client's connection is closed next.
    Done(u64),
}
