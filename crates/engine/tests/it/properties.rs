//! What holds for every manifest and every world.
