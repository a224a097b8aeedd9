//! DiffCache: core.
