//! The model and the scripts are the same machine: random histories on both, every answer, every state and every message
//! compared.

mod fair;
mod histories;
mod latch;
mod limits;
mod lock;
mod permits;
mod read_write;
mod semaphore;
