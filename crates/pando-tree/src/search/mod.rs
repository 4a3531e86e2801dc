//! Reading the tree: navigation, waves of leaf scans, re-ranking, calibration.
