//! A cluster's life without faults: it comes up, grows, shrinks, is left alone.

use crate::world::{World, secs};

#[tokio::test(start_paused = true)]
async fn a_cluster_of_one_comes_up() {
    let world = World::with_cluster(1).await;
    world.until_settled("c", 1, secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_three_comes_up() {
    let world = World::with_cluster(3).await;
    world.until_settled("c", 3, secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_five_comes_up() {
    let world = World::with_cluster(5).await;
    world.until_settled("c", 5, secs(120)).await;
}
