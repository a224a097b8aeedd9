//! DiffCache: placement.
