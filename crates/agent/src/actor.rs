//! The one thread that owns the node's kernel sockets and data plane. Requests reach it as jobs, one after the other, so
//! that two applies never meet.

use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::problem::{Failure, Fault, Problem};

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Sends jobs to the thread.
pub struct Handle<T>(mpsc::Sender<Job<T>>);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: 'static> Handle<T> {
    /// Starts the thread; it makes its own object, which need not be `Send`, and lives until all handles are gone.
    /// Returns when the object is made.
    pub fn spawn<E: Send + 'static>(make: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<Self, E> {
        let (sender, jobs) = mpsc::channel::<Job<T>>();
        let (ready, made) = mpsc::channel();
        std::thread::spawn(move || {
            let mut object = match make() {
                Ok(object) => {
                    let _ = ready.send(Ok(()));
                    object
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            for job in jobs {
                job(&mut object);
            }
        });
        match made.recv() {
            Ok(result) => result.map(|()| Self(sender)),
            // The thread never drops the sender without a word unless it panicked, and then the panic says why.
            Err(_) => panic!("the agent's thread ended while it started"),
        }
    }

    /// Runs a job and waits for its result.
    pub async fn call<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, Failure> {
        let (sender, result) = oneshot::channel();
        self.post(move |object| {
            let _ = sender.send(job(object));
        });
        result.await.unwrap_or_else(|_| Err(gone()))
    }

    /// As [`Self::call`], for threads.
    pub fn call_blocking<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, Failure> {
        let (sender, result) = oneshot::channel();
        self.post(move |object| {
            let _ = sender.send(job(object));
        });
        result.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Runs a job when its turn comes; nobody waits for it.
    pub fn post(&self, job: impl FnOnce(&mut T) + Send + 'static) {
        // A failure shows as a result that never comes.
        let _ = self.0.send(Box::new(job));
    }
}

fn gone() -> Failure {
    let remedy = "look at its log; restart it: `systemctl restart segued` (forwarding goes on meanwhile)";
    Failure::one(Fault::Agent, Problem::new("segued", "the agent's worker has ended", remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_one_after_the_other_on_one_object() {
        let handle = Handle::spawn(|| Ok::<_, ()>(0u32)).unwrap();
        for expected in 1..=3 {
            let seen = handle.call_blocking(|count| {
                *count += 1;
                Ok(*count)
            });
            assert_eq!(seen, Ok(expected));
        }
    }

    #[test]
    fn a_failure_to_start_is_returned() {
        assert_eq!(Handle::<u32>::spawn(|| Err("no")).err(), Some("no"));
    }

    #[test]
    fn a_dead_worker_is_an_error_and_not_a_hang() {
        let handle = Handle::spawn(|| Ok::<_, ()>(0u32)).unwrap();
        let first: Result<(), Failure> = handle.call_blocking(|_| panic!("on purpose"));
        assert_eq!(first.unwrap_err().fault, Fault::Agent);
        let second = handle.call_blocking(|count| Ok(*count));
        assert_eq!(second.unwrap_err().fault, Fault::Agent);
    }
}
