//! Executable models: what each step does to a primitive, and what it answers.
//!
//! Every rule exists twice and no more: here, and as a Lua script for Redis. A property test in `turnlock` drives both
//! with the same histories and compares every answer and every state.

mod lock;

pub use lock::{Acquired, LockState, Released, Renewed, Snapshot};
