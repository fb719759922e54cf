//! quick
use segue_bench::{cpu, lane::Lane, scenario::{Engine, Redirect, Scenario}};
fn main() -> Result<(), segue_bench::error::Error> {
    segue_bench::interrupt::watch()?;
    segue_bench::netns::remove_stale();
    let n: u32 = std::env::args().nth(1).map_or(1_000_000, |a| a.parse().unwrap());
    let pinned = cpu::pin(None, std::env::args().nth(2).is_none())?;
    println!("cpu {} rt {}", pinned.cpu, pinned.real_time);
    for scenario in [Scenario::HEncaps] {
        for engine in [Engine::Segue] {
            let mut lane = Lane::open(scenario, 112, engine, 64)?;
            match lane.verify(200000) { Ok(r) => println!("verify {r:?}"), Err(e) => println!("{e}") }
            for _ in 0..3 {
                let run = lane.saturate(n)?;
                println!("{} {:?}: {:.3} Mpps lost {} {}", scenario.name(), engine, run.rate / 1e6, run.lost(), lane.drops());
            }
            let run = lane.pace(200e3, std::time::Duration::from_millis(200))?;
            println!("paced {:.3} Mpps {} lost {}", run.rate / 1e6, run.sent, run.lost());
        }
    }
    Ok(())
}
