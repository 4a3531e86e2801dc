//! Codes of leaves: columns line up, estimates come near the distances.

mod common;

use common::{Rows, clustered, config};
use pando_kernels::{Kernels, Metric, Rotation, unpack_code};
use pando_tree::{TreeParams, encode_leaf};

#[test]
fn codes_do_not_depend_on_company_and_estimate_distances() {
    let dim = 96;
    let k = Kernels::detect();
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let cfg = config(dim, metric);
        let rows = Rows::new(dim, move |row| clustered(row, dim, 3, 0.7));
        let rotation = Rotation::new(cfg.seed, dim);
        let mean = if metric == Metric::Dot { vec![0.0; dim] } else { vec![0.01; dim] };
        let params = TreeParams { split_size: 128, mean: mean.clone(), bands: Vec::new() };
        let mut centroid = vec![0f32; dim];
        k.normalize(&clustered(0, dim, 3, 0.0), &mut centroid);
        let encode =
            |list: &[u64]| encode_leaf(&cfg, &params, &rotation, &k, &centroid, list, &rows).unwrap();
        let list: Vec<u64> = (0..1100).collect();
        let all = encode(&list);
        assert_eq!((all.n, all.f_add.len(), all.norm.len()), (1100, 1100, 1100));
        let padded = rotation.padded();
        let rotate = |x: &[f32], minus: &[f32]| {
            let diff: Vec<f32> = x.iter().zip(minus).map(|(a, b)| a - b).collect();
            let mut out = vec![0f32; padded];
            rotation.apply(&k, &diff, &mut out);
            out
        };
        let prepare = |row: u64| {
            let x = clustered(row, dim, 3, 0.7);
            let mut out = x.clone();
            if metric == Metric::Cosine {
                k.normalize(&x, &mut out);
            }
            out
        };
        let q = prepare(5000);
        let q_rot = rotate(&q, &mean);
        let (mut error, mut scale) = (0f32, 0f32);
        for row in [0usize, 31, 32, 1023, 1024, 1099] {
            let one = encode(&[row as u64]);
            assert_eq!((one.f_add[0], one.f_rescale[0]), (all.f_add[row], all.f_rescale[row]));
            assert_eq!(one.refine.as_ref().unwrap().f_add[0], all.refine.as_ref().unwrap().f_add[row]);
            let mut code = vec![0u8; padded / 8];
            unpack_code(&all.packed, padded, row, &mut code);
            let product: f32 = (0..padded)
                .map(|i| if code[i / 8] >> (i % 8) & 1 == 1 { 0.5 * q_rot[i] } else { -0.5 * q_rot[i] })
                .sum();
            let x = prepare(row as u64);
            let (add, truth) = match metric {
                Metric::Dot => (-k.dot(&q, &centroid), -k.dot(&q, &x)),
                _ => (k.l2(&q, &centroid), k.l2(&q, &x)),
            };
            let estimate = all.f_add[row] + add + all.f_rescale[row] * product;
            error += (estimate - truth).abs();
            scale += truth.abs();
        }
        assert!(error < 0.2 * scale, "{metric:?}: {error} of {scale}");
    }
}
