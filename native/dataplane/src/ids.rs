//! Names of objects on the wire: a kind and a 64-digit content hash.

use std::fmt;

use diffcache_base::hex;

/// What an object is; the set is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An image's raw content, named by its content id.
    Images,
    /// A patch file, named by the hash of the file.
    Patches,
    /// The manifest of an image, named by the image's content id.
    Manifests,
    /// What makes an image's file of its raw content, named by the hash of its own file.
    Recipes,
    /// The compressed form of an image, named by the image's content id.
    Compressed,
}

impl Kind {
    /// Every kind, in the order of [`Kind::index`].
    pub const ALL: [Kind; 5] = [
        Kind::Images,
        Kind::Patches,
        Kind::Manifests,
        Kind::Recipes,
        Kind::Compressed,
    ];

    /// The name in paths: on the wire and below a plane's root directory.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Images => "images",
            Kind::Patches => "patches",
            Kind::Manifests => "manifests",
            Kind::Recipes => "recipes",
            Kind::Compressed => "compressed",
        }
    }

    /// The kind of that name, if there is one.
    pub fn parse(text: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Position in [`Kind::ALL`], for tables of counters.
    pub fn index(self) -> usize {
        match self {
            Kind::Images => 0,
            Kind::Patches => 1,
            Kind::Manifests => 2,
            Kind::Recipes => 3,
            Kind::Compressed => 4,
        }
    }
}

/// An object's name: its kind and its hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// What the object is.
    pub kind: Kind,
    /// The 32 bytes behind the 64 digits of its id.
    pub id: [u8; 32],
}

impl ObjectKey {
    /// The key for an id of exactly 64 lower-case hexadecimal digits.
    pub fn parse(kind: &str, id: &str) -> Option<ObjectKey> {
        Some(ObjectKey {
            kind: Kind::parse(kind)?,
            id: hex::decode(id)?,
        })
    }

    /// The id as 64 lower-case hexadecimal digits.
    pub fn id_hex(&self) -> String {
        hex::encode(&self.id)
    }

    /// The path of the object on every server.
    pub fn object_path(&self) -> String {
        format!("/v1/objects/{self}")
    }

    /// The path of the object's claim on its coordinator.
    pub fn claim_path(&self) -> String {
        format!("/v1/claims/{self}")
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.id_hex())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_exactly_64_lower_case_digits() {
        let good = "0123456789abcdef".repeat(4);
        let key = ObjectKey::parse("images", &good).unwrap();
        assert_eq!(key.id_hex(), good);
        assert_eq!(key.object_path(), format!("/v1/objects/images/{good}"));
        for bad in [
            good.to_uppercase(),
            good[1..].to_string(),
            format!("{good}0"),
            format!("{}g", &good[1..]),
            format!("{}/", &good[1..]),
            String::new(),
        ] {
            assert!(ObjectKey::parse("images", &bad).is_none(), "{bad}");
        }
        assert!(ObjectKey::parse("staging", &good).is_none());
        assert!(ObjectKey::parse("Images", &good).is_none());
    }

    #[test]
    fn kinds_index_their_table() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        }
    }
}
