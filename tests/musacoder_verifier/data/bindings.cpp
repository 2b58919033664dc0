at::Tensor scaled(const at::Tensor& x, double scale, bool negate) {
  return negate ? x * -scale : x * scale;
}
std::tuple<at::Tensor, int64_t> both(at::Tensor x, int64_t n) { return {x.add(x), n + 1}; }
std::vector<at::Tensor> pieces(std::vector<at::Tensor> list, c10::optional<at::Tensor> last) {
  if (last.has_value()) list.push_back(*last);
  return list;
}
std::string shout(const std::string& text) { return text + "!"; }
int64_t total(std::vector<int64_t> list) {
  int64_t sum = 0;
  for (auto item : list) sum += item;
  return sum;
}
int narrow(int n) { return n; }
unsigned char byte(unsigned char n) { return n; }
float real(float r) { return r; }
bool flag(bool b) { return b; }
void nothing() {}
at::Tensor undefined() { return at::Tensor(); }
at::Tensor made(at::IntArrayRef size, at::ScalarType dtype) {
  return torch::zeros(size, torch::dtype(dtype));
}
at::Scalar number(double d) { return at::Scalar(d); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "bindings";
  m.def("scaled", &scaled, "scales", py::arg("x"), py::arg("scale") = 2, py::arg("negate") = false);
  m.def("both", &both);
  m.def("pieces", &pieces, py::arg("list"), py::arg("last") = py::none());
  m.def("shout", &shout);
  m.def("total", &total);
  m.def("narrow", &narrow);
  m.def("byte", &byte);
  m.def("real", &real);
  m.def("flag", &flag);
  m.def("nothing", &nothing);
  m.def("undefined", &undefined);
  m.def("made", &made);
  m.def("number", &number);
  m.def("pick", [](int n) { return "int" + std::to_string(n); });
  m.def("pick", [](const std::string& s) { return "str" + s; });
  m.def("free", [](int64_t n) { return n; }, py::call_guard<py::gil_scoped_release>());
  m.attr("ANSWER") = 42;
}
