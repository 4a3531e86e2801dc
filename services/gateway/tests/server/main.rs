//! The gateway over a real socket, with a real engine on a temporary directory.

mod bulk;
mod calls;
mod fixture;
mod hostile;
mod lifecycle;
