//! Near copies: coding bytes as what some other bytes are, at any offset, plus the byte-wise difference.
//!
//! Pure bytes in, bytes out; no file format beyond that of one coded piece:
//!
//! * [`anchors`]: places in data that are chosen by their content, so that the same content has the same anchors at any offset.
//! * [`index`]: where the base has the anchors of a target, in a table of bounded size.
//! * [`align`]: which bytes of the base a target's bytes resemble, as a list of copies.
//! * [`code`]: a target as copies from a reference, differences and literals, and back. What a decoder takes is bounded by the target's length.
//!
//! * [`pack`]: the same, compressed.
//!
//! The idea is bsdiff's (Percival, "Naive differences of executable code", 2003): a program that was built again has the same code with other
//! addresses in it, so that the difference to the old one is zero nearly everywhere. A suffix array over a disk image is out of the question;
//! sampled anchors find nearly the same copies in linear time.

pub mod align;
pub mod anchors;
pub mod code;
pub mod index;
pub mod pack;
mod pages;
