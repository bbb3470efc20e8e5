//! Vectors as whole numbers of one byte, and their cosines.

/// Scales a vector to whole numbers from -127 to 127. Only its direction is kept.
pub(crate) fn quantized(vector: &[f32]) -> Vec<i8> {
    let largest = vector.iter().fold(0_f32, |largest, value| largest.max(value.abs()));
    if largest == 0.0 {
        return vec![0; vector.len()];
    }
    vector.iter().map(|value| (value / largest * 127.0).round() as i8).collect()
}

/// Returns the cosines of a vector with many others. `None` stands for a vector of another width,
/// and for one that is all zero.
pub(crate) fn cosines<'a>(of: &[i8], others: impl Iterator<Item = &'a [i8]>) -> Vec<Option<f64>> {
    let norm = |squares: i32| f64::from(squares).sqrt();
    let own = norm(of.iter().map(|value| i32::from(*value) * i32::from(*value)).sum());
    let cosine = |other: &[i8]| {
        let (mut dot, mut squares) = (0_i32, 0_i32);
        for (a, b) in of.iter().zip(other) {
            let (a, b) = (i32::from(*a), i32::from(*b));
            dot += a * b;
            squares += b * b;
        }
        let norms = own * norm(squares);
        (of.len() == other.len() && norms > 0.0).then(|| f64::from(dot) / norms)
    };
    others.map(cosine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_needs_two_nonzero_vectors_of_one_width() {
        let others = [&[2, 0][..], &[0, 3], &[1], &[0, 0], &[]];
        let expect = [Some(1.0), Some(0.0), None, None, None];
        assert_eq!(cosines(&[1, 0], others.into_iter()), expect);
        assert_eq!(cosines(&[0, 0], others.into_iter()), [None; 5]);
    }
}
