mod model;
mod properties;
mod rules;
