//! The deterministic encoding of records: fields in order, little-endian, fixed width; counts are u32.
//!
//! One value has exactly one encoding, and a decoder accepts only that one. A count is checked against
//! the bytes that are left before memory is taken for it.

use bytes::Bytes;

/// Why a decoder stopped. The caller adds the kind of object.
pub(crate) type Bad = &'static str;

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Bad> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or("it ends too early")?;
        self.rest = rest;
        Ok(*head)
    }

    /// A count of items of at least `min` bytes each.
    pub(crate) fn count(&mut self, min: usize) -> Result<usize, Bad> {
        let n = u32::from_le_bytes(self.array()?) as usize;
        if n.checked_mul(min.max(1)).is_none_or(|need| need > self.rest.len()) {
            return Err("a count exceeds the bytes that follow");
        }
        Ok(n)
    }

    pub(crate) fn end(&self) -> Result<(), Bad> {
        if self.rest.is_empty() { Ok(()) } else { Err("bytes follow its end") }
    }
}

/// A value with one fixed encoding.
pub(crate) trait Codec: Sized {
    /// Fewest bytes a value takes.
    const MIN: usize;
    fn put(&self, out: &mut Vec<u8>);
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad>;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Codec for $t {
            const MIN: usize = size_of::<$t>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
                Ok(<$t>::from_le_bytes(r.array()?))
            }
        }
    )*};
}
number!(u8, u16, u32, u64, u128, i64, f32, f64);

impl Codec for bool {
    const MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        match r.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a flag is neither 0 nor 1"),
        }
    }
}

impl<const N: usize> Codec for [u8; N] {
    const MIN: usize = N;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        r.array()
    }
}

impl Codec for String {
    const MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        let n = r.count(1)?;
        let text = std::str::from_utf8(r.bytes(n)?).map_err(|_| "text is not UTF-8")?;
        Ok(text.to_owned())
    }
}

impl Codec for Bytes {
    const MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        let n = r.count(1)?;
        Ok(Bytes::copy_from_slice(r.bytes(n)?))
    }
}

impl<T: Codec> Codec for Option<T> {
    const MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        if bool::take(r)? { T::take(r).map(Some) } else { Ok(None) }
    }
}

impl<T: Codec> Codec for Vec<T> {
    const MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for item in self {
            item.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        let n = r.count(T::MIN)?;
        let mut items = Vec::with_capacity(n);
        for _ in 0..n {
            items.push(T::take(r)?);
        }
        Ok(items)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    const MIN: usize = A::MIN + B::MIN;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, Bad> {
        Ok((A::take(r)?, B::take(r)?))
    }
}

/// u32 is what the format holds; no object comes near it.
fn put_count(n: usize, out: &mut Vec<u8>) {
    let n = u32::try_from(n).expect("a list in one object stays below 2^32 items");
    out.extend_from_slice(&n.to_le_bytes());
}

/// Declares a plain struct and its encoding: the fields in the order written.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* }

        impl $crate::codec::Codec for $name {
            const MIN: usize = 0 $(+ <$ty as $crate::codec::Codec>::MIN)*;
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::Codec::put(&self.$field, out);)*
            }
            fn take(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Bad> {
                Ok(Self { $($field: <$ty as $crate::codec::Codec>::take(r)?),* })
            }
        }
    };
}

/// Declares the one-byte encoding of an enum without fields.
macro_rules! code {
    ($name:ty { $($variant:path = $code:literal),* $(,)? }) => {
        impl $crate::codec::Codec for $name {
            const MIN: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $($variant => $code),* });
            }
            fn take(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Bad> {
                match r.array::<1>()?[0] {
                    $($code => Ok($variant),)*
                    _ => Err("an unknown code"),
                }
            }
        }
    };
}

pub(crate) use {code, record};
