//! When the controller is asked.

use super::*;

#[test]
fn the_jobs_of_a_large_cluster_are_listed_when_something_changes_here_and_now_and_then() {
    let site = Site::configured();
    let start = Instant::now();
    site.large(UNIX, 300);
    let (mut node, mut jobs) = site.both();
    // Each minute, as the agent does; what it says, and how often it has listed them.
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        drop(node.read(now));
        let said = match jobs.read(now, UNIX + seconds) {
            Answer::Said(said) => Some(said),
            Answer::Silent => None,
            Answer::NotHere => panic!(),
        };
        if let Some(said) = &said {
            assert!(said.ended.is_some() && said.active == [7], "{said:?}");
        }
        (said.and_then(|s| s.pending), site.count("listed"))
    };
    assert_eq!(at(0), (Some(1), 1));
    assert_eq!(at(60), (Some(1), 1));
    assert_eq!(at(120), (Some(1), 2));
    // The node's record is another one: a job may have begun or ended.
    site.prints("scontrol", &fixture("node-draining-22.05.txt"));
    assert_eq!(at(180), (Some(1), 3));
    assert_eq!(at(240), (Some(1), 3));
    // Once the record cannot be had, nothing is left to what was known, and the controller is asked no more often for that.
    site.does("scontrol", "exit 1");
    assert_eq!(at(290), (None, 3));
    assert_eq!(at(350), (Some(1), 4));
    assert_eq!(at(410), (None, 4));
    assert_eq!(at(470), (Some(1), 5));
    // A controller that forgets soon is asked each time: no end may be missed.
    site.prints("scontrol", &fixture("node-mixed-22.05.txt"));
    site.large(UNIX + 800, 90);
    assert_eq!(at(800), (Some(1), 6));
    assert_eq!(at(860), (Some(1), 7));
}

#[test]
fn no_end_of_a_job_is_missed_on_a_large_cluster() {
    let site = Site::configured();
    let start = Instant::now();
    let mixed = fs::read_to_string(fixture("node-mixed-22.05.txt")).unwrap();
    let shows = |cpus: u32| {
        let text = mixed.replace("CPUAlloc=1", &format!("CPUAlloc={cpus}"));
        fs::write(site.path("node.txt"), text).unwrap();
    };
    shows(1);
    site.prints("scontrol", &site.path("node.txt"));
    site.large(UNIX, 300);
    let queue = site.read("queue.txt");
    let runs = |lines: &str| {
        let text = queue.replace("7|RUNNING|NONE|vm||(null)\n", lines);
        fs::write(site.path("queue.txt"), text).unwrap();
    };
    let (mut node, mut jobs) = site.both();
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        assert!(matches!(node.read(now), Answer::Said(_)));
        let said = said(jobs.read(now, UNIX + seconds));
        let ended = said.ended.unwrap();
        assert_eq!((ended.failed, ended.withdrawn, ended.unknown), (0, 0, 0));
        (said.active, ended.completed, site.count("listed"))
    };
    assert_eq!(at(0), (vec![7], 0, 1));
    // One that makes room for another of the same size leaves the record as it was: it is found with the next list.
    let seven = format!("7|COMPLETED|{}|vm||(null)\n", UNIX + 50);
    runs(&format!("{seven}8000|RUNNING|NONE|vm||(null)\n"));
    assert_eq!(at(60), (vec![7], 0, 1));
    assert_eq!(at(120), (vec![8000], 1, 2));
    // The record tells of one after which the node is free.
    shows(0);
    runs(&format!("{seven}8000|COMPLETED|{}|vm||(null)\n", UNIX + 170));
    assert_eq!(at(180), (vec![], 2, 3));
    assert_eq!(at(240), (vec![], 2, 3));
}

#[test]
fn the_jobs_of_a_small_cluster_are_listed_each_time() {
    let site = Site::configured();
    site.counts("echo '7|RUNNING|NONE|vm||(null)'");
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    for n in 0..3 {
        let now = start + Duration::from_secs(n * 60);
        assert!(matches!(node.read(now), Answer::Said(_)));
        assert!(matches!(jobs.read(now, UNIX + n * 60), Answer::Said(_)));
        assert_eq!(site.count("listed"), usize::try_from(n).unwrap() + 1);
    }
}

#[test]
fn the_node_is_asked_for_once_a_minute_however_long_the_controller_was_away_and_then_its_jobs_too() {
    let site = Site::configured();
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    site.does(
        "scontrol",
        &format!("echo x >> {}; exit 1", site.path("asked").display()),
    );
    site.counts("exit 1");
    let mut at = |seconds: u64| {
        let now = start + Duration::from_secs(seconds);
        let said = matches!(node.read(now), Answer::Said(_));
        let lists = seconds.is_multiple_of(60);
        let listed = lists.then(|| matches!(jobs.read(now, UNIX + seconds), Answer::Said(_)));
        (said, listed)
    };
    // Each half a minute for the record, each minute for jobs, as the agent does.
    for n in 0..40 {
        assert!(!at(n * 30).0);
    }
    assert!(site.count("asked") >= 20, "{}", site.count("asked"));
    assert!(site.count("listed") < 10, "{}", site.count("listed"));
    site.prints("scontrol", &fixture("node-mixed-22.05.txt"));
    site.prints("squeue", &fixture("queue-22.05.txt"));
    assert!(at(1_200).0 || at(1_230).0);
    assert_eq!(at(1_260), (true, Some(true)));
}

#[test]
fn lists_that_fail_by_themselves_are_asked_for_less_often_all_the_same() {
    let site = Site::configured();
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    site.counts("exit 1");
    for n in 0..20 {
        let now = start + Duration::from_secs(n * 60);
        assert!(matches!(node.read(now), Answer::Said(_)));
        assert_eq!(jobs.read(now, UNIX + n * 60), Answer::Silent);
    }
    assert!(site.count("listed") < 10, "{}", site.count("listed"));
}

#[test]
fn a_controller_whose_silences_are_short_is_not_asked_for_more_lists() {
    let site = Site::configured();
    let (mut node, mut jobs) = site.both();
    let start = Instant::now();
    site.counts("exit 1");
    for n in 0..40 {
        // Overloaded: every other question is answered.
        if n % 2 == 0 {
            site.does("scontrol", "exit 1");
        } else {
            site.prints("scontrol", &fixture("node-mixed-22.05.txt"));
        }
        let now = start + Duration::from_secs(n * 60);
        assert_eq!(matches!(node.read(now), Answer::Said(_)), n % 2 == 1);
        assert_eq!(jobs.read(now, UNIX + n * 60), Answer::Silent);
    }
    assert!(site.count("listed") < 15, "{}", site.count("listed"));
}
