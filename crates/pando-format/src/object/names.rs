//! Names, tags, pins and sweep marks: who a name means from now on. The newest number counts.

use crate::codec::record;
use crate::envelope::stored;
use crate::error::InputError;
use crate::ids::{CollectionUuid, RootId};

/// Checks `[a-z0-9][a-z0-9._-]{0,127}`, the names of collections and tags.
pub fn check_collection_name(name: &str) -> Result<(), InputError> {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let valid = (1..=128).contains(&name.len())
        && name.bytes().enumerate().all(|(i, b)| ok(b) || (i > 0 && b"._-".contains(&b)));
    if valid {
        Ok(())
    } else {
        Err(InputError::batch("a name is 1 to 128 of a-z 0-9 . _ - and begins with a letter or digit"))
    }
}

record! {
    /// Owner of a collection name.
    #[derive(Eq)]
    pub struct NameRecord {
        /// The name, as in the key.
        pub name: String,
        /// Number of this object, from 1, without gaps.
        pub number: u64,
        /// Who the name means from now on; None frees it.
        pub owner: Option<CollectionUuid>,
    }
}

stored!(NameRecord, Name, |object| {
    check_collection_name(&object.name).map_err(|_| "the name is not valid")?;
    if object.number == 0 { Err("its number is 0") } else { Ok(()) }
});

record! {
    /// A root that a tag, pin or head names.
    #[derive(Copy, Eq)]
    pub struct RootRef {
        /// The root.
        pub root: RootId,
        /// Its depth.
        pub depth: u64,
        /// Generation of a head that names it.
        pub generation: u64,
    }
}

record! {
    /// A tag: a name for a root.
    #[derive(Eq)]
    pub struct TagRecord {
        /// The tag, as in the key.
        pub tag: String,
        /// Number of this object, from 1, without gaps.
        pub number: u64,
        /// The root it means from now on; None removes the tag.
        pub target: Option<RootRef>,
    }
}

stored!(TagRecord, Tag, |object| {
    check_collection_name(&object.tag).map_err(|_| "the tag is not valid")?;
    if object.number == 0 { Err("its number is 0") } else { Ok(()) }
});

record! {
    /// A fork's hold on a root of an ancestor.
    #[derive(Eq)]
    pub struct PinRecord {
        /// The fork.
        pub fork: CollectionUuid,
        /// The root it needs.
        pub target: RootRef,
    }
}

stored!(PinRecord, Pin);

record! {
    /// A sweep's mark, written before the sweep looks for tags and pins: roots up to this depth that nothing holds may
    /// be deleted from now on, so that whoever names one of them afterwards must not count on it.
    #[derive(Eq)]
    pub struct SweepRecord {
        /// The collector's own random number.
        pub nonce: crate::ids::Nonce,
        /// Generation of the head read before marking began.
        pub generation: u64,
        /// Depth of the newest root that is no longer kept for its age.
        pub up_to_depth: u64,
    }
}

stored!(SweepRecord, Sweep);
