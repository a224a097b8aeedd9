//! One image that is arriving: its mounted file, reads of it, the leaves that are on the local disk, and the fetches of the others.

pub mod aside;
pub mod chunk;
pub mod filesystem;
pub mod flights;
pub mod lazy_file;
pub mod leaves;
pub mod marks;
pub mod storage;
#[cfg(test)]
mod tests;
