//! Following cursors.

use std::future::Future;

use crate::args::Page;
use crate::error::{Exit, Failure};

/// A page of a list.
pub(super) trait Paged {
    /// Where the next page begins.
    fn next(&self) -> Option<&str>;
    /// Appends the page that follows.
    fn extend(&mut self, following: Self);
}

/// One page, or all of them. Pages are read at the heights of their calls: a list that changes meanwhile may miss or
/// repeat an entry.
pub(super) async fn pages<T, F, Fut>(page: &Page, ask: F) -> Result<T, Failure>
where
    T: Paged,
    F: Fn(Option<String>, Option<u32>) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    // All pages are fetched in the largest steps that the contract gives.
    let limit = if page.all {
        page.limit.or(Some(100))
    } else {
        page.limit
    };
    let mut cursor = page.start_after.clone();
    let mut list = ask(cursor.clone(), limit).await?;
    while page.all
        && let Some(next) = list.next().map(str::to_owned)
    {
        if cursor.as_ref() == Some(&next) {
            return Err(Failure::new(
                Exit::Failed,
                "bad_answer",
                format!("the cursor {next:?} does not move"),
            ));
        }
        list.extend(ask(Some(next.clone()), limit).await?);
        cursor = Some(next);
    }
    Ok(list)
}

macro_rules! paged {
    ($($answer:ty : $items:ident),* $(,)?) => {
        $(impl Paged for $answer {
            fn next(&self) -> Option<&str> {
                self.next.as_deref()
            }

            fn extend(&mut self, following: Self) {
                self.$items.extend(following.$items);
                self.next = following.next;
                self.block = following.block;
            }
        })*
    };
}

use hpc_schema::registry::{AnchorsAnswer, ClustersAnswer, JobsAnswer, NodesAnswer};

paged! { ClustersAnswer: clusters, NodesAnswer: nodes, JobsAnswer: nodes, AnchorsAnswer: anchors }

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use hpc_schema::registry::{AnchorView, BlockRef};
    use hpc_schema::time::UnixSeconds;

    use super::*;

    fn answer(height: u64, next: Option<&str>) -> AnchorsAnswer {
        let time = UnixSeconds(height);
        let anchor = AnchorView {
            kind: "k".into(),
            digest: "d".into(),
            sender: "s".into(),
            height,
            time,
        };
        AnchorsAnswer {
            anchors: vec![anchor],
            next: next.map(str::to_owned),
            block: BlockRef { height, time },
        }
    }

    fn run(page: &Page, answers: &[AnchorsAnswer]) -> (Result<AnchorsAnswer, Failure>, Vec<Option<String>>) {
        let asked = RefCell::new(Vec::new());
        let result = pages(page, |cursor, _| {
            let n = asked.borrow().len();
            asked.borrow_mut().push(cursor);
            std::future::ready(Ok(answers[n].clone()))
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        (runtime.block_on(result), asked.into_inner())
    }

    #[test]
    fn all_follows_the_cursor_to_the_end() {
        let page = Page {
            all: true,
            ..Page::default()
        };
        let (list, asked) = run(
            &page,
            &[answer(1, Some("a")), answer(2, Some("b")), answer(3, None)],
        );
        let list = list.unwrap();
        assert_eq!(
            list.anchors.iter().map(|a| a.height).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert_eq!((list.next, list.block.height), (None, 3));
        assert_eq!(asked, [None, Some("a".into()), Some("b".into())]);
    }

    #[test]
    fn one_page_keeps_its_cursor() {
        let page = Page {
            start_after: Some("z".into()),
            ..Page::default()
        };
        let (list, asked) = run(&page, &[answer(1, Some("a"))]);
        assert_eq!(list.unwrap().next.as_deref(), Some("a"));
        assert_eq!(asked, [Some("z".into())]);
    }

    #[test]
    fn a_cursor_that_does_not_move_ends_with_an_error() {
        let page = Page {
            all: true,
            ..Page::default()
        };
        let (list, _) = run(
            &page,
            &[answer(1, Some("a")), answer(2, Some("a")), answer(3, Some("a"))],
        );
        assert_eq!(list.unwrap_err().code, "bad_answer");
    }
}
