//! What a simulation found.

/// Numbers of one volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks that its requests touched.
    pub references: u64,
    /// Those of them that were cached.
    pub hits: u64,
    /// Its blocks that left the cache for others.
    pub evictions: u64,
    /// Blocks that were written to the cache: fills, and writes to cached blocks.
    pub written: u64,
}

/// Blocks of each volume at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Microseconds since the first request.
    pub time_us: u64,
    /// In the order of the report's volumes. Volumes that came later are missing at the end.
    pub blocks: Vec<u32>,
}

/// What a simulation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Each volume's name and numbers.
    pub volumes: Vec<(String, Counts)>,
    /// Blocks that the volumes had.
    pub occupancy: Vec<Row>,
    /// Blocks that the volumes were allowed, whenever that changed.
    pub sizes: Vec<Row>,
}
