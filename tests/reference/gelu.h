#pragma once

namespace dcformer::reference {

/// x·Φ(x) with the normal distribution function Φ (`erf`), or its approximation with tanh
/// (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
enum class Gelu { erf, tanh };

double gelu(double x, Gelu kind);
double gelu_derivative(double x, Gelu kind);

}  // namespace dcformer::reference
