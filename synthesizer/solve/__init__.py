"""Integer programs and heuristics for the trees and paths of chunks over a sketch's resources."""
