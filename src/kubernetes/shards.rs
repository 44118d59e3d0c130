//! Owns which shard a cluster belongs to, and what a shard's Lease is called. Does no I/O.

use std::num::NonZeroU32;

use etcd_operator_core::ids::Uid;

/// The first shard's Lease: the name under which the Go operator of the same API group elects its
/// leader, so that the two exclude each other.
pub const LEASE: &str = "aa20b3a9.etcd-operator.cozystack.io";

/// The name of shard `index`'s Lease, counted from 0.
pub fn lease_name(index: u32) -> String {
    if index == 0 { LEASE.to_owned() } else { format!("{LEASE}-{index}") }
}

/// The shard of the cluster with this UID, out of `shards`: rendezvous hashing, so that a change
/// from n to n + 1 shards moves about one cluster in n + 1, all of them to the new shard.
///
/// Every process must come to the same answer, whatever its build: the hash is spelled out here
/// and never changes.
pub fn shard_of(uid: &Uid, shards: NonZeroU32) -> u32 {
    (0..shards.get()).max_by_key(|index| weight(uid, *index)).unwrap_or(0)
}

/// FNV-1a over the UID and the index, then splitmix64's finalizer: FNV alone leaves the high bits
/// of inputs that differ in the last byte too much alike for a comparison.
fn weight(uid: &Uid, index: u32) -> u64 {
    let mut hash =
        uid.as_str().bytes().chain(index.to_be_bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(i: u32) -> Uid {
        Uid(format!("{i:08x}-0000-4000-8000-000000000000"))
    }

    fn n(shards: u32) -> NonZeroU32 {
        NonZeroU32::new(shards).unwrap()
    }

    #[test]
    fn one_shard_more_moves_clusters_only_to_the_new_one() {
        let mut moved = 0;
        for i in 0..10_000 {
            let (before, after) = (shard_of(&uid(i), n(4)), shard_of(&uid(i), n(5)));
            if before != after {
                assert_eq!(after, 4);
                moved += 1;
            }
        }
        assert!((1_800..2_200).contains(&moved), "{moved} of 10000 moved, a fifth was expected");
    }

    #[test]
    fn clusters_spread_evenly() {
        let mut count = [0; 4];
        for i in 0..10_000 {
            count[shard_of(&uid(i), n(4)) as usize] += 1;
        }
        assert!(count.iter().all(|c| (2_300..2_700).contains(c)), "{count:?}");
    }

    #[test]
    fn the_answer_is_the_same_in_every_build() {
        let pinned: Vec<u32> = (0..12).map(|i| shard_of(&uid(i), n(7))).collect();
        assert_eq!(pinned, [4, 5, 3, 3, 0, 3, 4, 0, 4, 3, 4, 5]);
        assert_eq!(shard_of(&uid(1), n(1)), 0);
    }

    #[test]
    fn the_first_lease_is_the_go_operators() {
        assert_eq!(lease_name(0), "aa20b3a9.etcd-operator.cozystack.io");
        assert_eq!(lease_name(2), "aa20b3a9.etcd-operator.cozystack.io-2");
    }
}
